// The client of @a2a-js/sdk 0.3, driven over lines: a JSON request on stdin, its JSON answer on stdout, several at a
// time. What the SDK returns is written as it returned it; what it throws becomes `error`.

import { randomUUID } from "node:crypto";
import { createInterface } from "node:readline";
import { A2AClient, ClientFactory, DefaultAgentCardResolver } from "@a2a-js/sdk/client";

const connected = ({ url }) => new ClientFactory().createFromUrl(url);

const message = ({ text, message_id, task, context }) => ({
  kind: "message",
  role: "user",
  messageId: message_id ?? randomUUID(),
  parts: [{ kind: "text", text }],
  ...(task && { taskId: task }),
  ...(context && { contextId: context }),
});

const params = (request) => ({
  message: message(request),
  ...("blocking" in request && { configuration: { blocking: request.blocking } }),
});

// Every event, as the SDK leaves them to its user. `take`: leave after so many.
async function read({ take }, answers) {
  const events = [];
  for await (const event of answers) {
    events.push(event);
    if (events.length === take) break;
  }
  return { events, task: null };
}

const operations = {
  card: ({ url }) => new DefaultAgentCardResolver().resolve(url),
  send: async (request) => (await connected(request)).sendMessage(params(request)),
  stream: async (request) => read(request, (await connected(request)).sendMessageStream(params(request))),
  resubscribe: async (request) => read(request, (await connected(request)).resubscribeTask({ id: request.task })),
  get: async (request) =>
    (await connected(request)).getTask({ id: request.task, ...("history" in request && { historyLength: request.history }) }),
  cancel: async (request) => (await connected(request)).cancelTask({ id: request.task }),
  // The client class of 0.2, which many programs still use.
  legacy: async (request) => {
    const client = await A2AClient.fromCardUrl(new URL(".well-known/agent-card.json", request.url).href);
    return (await client.sendMessage(params(request))).result;
  },
};

// In a stream the SDK wraps the JSON-RPC error in one of its own.
const codeOf = (error) => error?.errorResponse?.error?.code ?? (error?.cause ? codeOf(error.cause) : null);

async function answer(request) {
  const reply = { id: request.id };
  try {
    reply.result = await operations[request.op](request);
  } catch (error) {
    reply.error = { type: error.constructor.name, code: codeOf(error), message: error.message };
  }
  process.stdout.write(JSON.stringify(reply) + "\n");
}

for await (const line of createInterface({ input: process.stdin })) {
  answer(JSON.parse(line));
}
