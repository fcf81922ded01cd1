// A client that is driven over lines: a JSON request on stdin, its JSON answer on stdout, several at a time. What the SDK
// returns is written as it returned it; what it throws becomes `error`, and `codeOf` finds its code.

import { createInterface } from "node:readline";

export async function drive(operations, codeOf) {
  for await (const line of createInterface({ input: process.stdin })) {
    answer(operations, codeOf, JSON.parse(line));
  }
}

async function answer(operations, codeOf, request) {
  const reply = { id: request.id };
  try {
    reply.result = (await operations[request.op](request)) ?? null;
  } catch (error) {
    reply.error = { type: error.constructor.name, code: codeOf(error) ?? null, message: error.message };
  }
  write(reply);
}

const write = (line) => process.stdout.write(JSON.stringify(line) + "\n");

// A stream: each event is a line of its own, as the SDK leaves it to its user. `take`: leave after so many.
export async function read({ id, take }, answers, shown = (event) => event) {
  let seen = 0;
  for await (const event of answers) {
    write({ id, event: shown(event) });
    if (++seen === take) break;
  }
}

// One client for each agent and way of calling, as a program would keep them.
export function kept(connect) {
  const clients = new Map();
  return (request) => {
    const key = `${request.binding} ${request.url}`;
    if (!clients.has(key)) {
      clients.set(key, connect(request));
      clients.get(key).catch(() => clients.delete(key));
    }
    return clients.get(key);
  };
}

// A call that shows `token`.
export const fetchShowing =
  ({ token }) =>
  (url, init = {}) => {
    const headers = new Headers(init.headers);
    if (token) headers.set("Authorization", `Bearer ${token}`);
    return fetch(url, { ...init, headers });
  };

// Cards are asked for in `version`, "" for none; left out, the SDK has its way.
export const fetchAs =
  ({ version }) =>
  (url, init = {}) => {
    if (version === undefined) return fetch(url, init);
    const headers = new Headers(init.headers);
    headers.delete("A2A-Version");
    if (version) headers.set("A2A-Version", version);
    return fetch(url, { ...init, headers });
  };
