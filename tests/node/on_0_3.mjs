// The client of @a2a-js/sdk 0.3.

import { randomUUID } from "node:crypto";
import { A2AClient, ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory } from "@a2a-js/sdk/client";
import { drive, fetchAs, fetchShowing, kept, read } from "./lines.mjs";

// `path`: "/" for the card at the URL itself.
const fetched = (request) => new DefaultAgentCardResolver({ fetchImpl: fetchAs(request) }).resolve(request.url, request.path && "");
const client = kept(({ url }) => new ClientFactory().createFromUrl(url));

function part({ name, mediaType, metadata, text, raw, url, data }) {
  const about = metadata && { metadata };
  if (text !== undefined) return { kind: "text", text, ...about };
  if (data !== undefined) return { kind: "data", data, ...about };
  const content = raw !== undefined ? { bytes: raw } : { uri: url };
  return { kind: "file", file: { ...content, ...(name && { name }), ...(mediaType && { mimeType: mediaType }) }, ...about };
}

const message = ({ parts, message_id, task, context, metadata, references }) => ({
  kind: "message",
  role: "user",
  messageId: message_id ?? randomUUID(),
  parts: parts.map(part),
  ...(task && { taskId: task }),
  ...(context && { contextId: context }),
  ...(metadata && { metadata }),
  ...(references && { referenceTaskIds: references }),
});

const pushConfig = ({ id, url, token, scheme, credentials }) => ({
  url,
  ...(id && { id }),
  ...(token && { token }),
  ...(scheme && { authentication: { schemes: [scheme], credentials } }),
});

const params = (request) => ({
  message: message(request),
  configuration: {
    ...("blocking" in request && { blocking: request.blocking }),
    ...("history" in request && { historyLength: request.history }),
    ...(request.push && { pushNotificationConfig: pushConfig(request.push) }),
  },
});

const named = ({ task, config }) => ({ id: task, ...(config && { pushNotificationConfigId: config }) });

const operations = {
  card: fetched,
  // `version`: by a card of that version.
  send: async (request) => {
    const chosen = "version" in request ? new ClientFactory().createFromAgentCard(await fetched(request)) : client(request);
    return (await chosen).sendMessage(params(request));
  },
  stream: async (request) => read(request, (await client(request)).sendMessageStream(params(request))),
  subscribe: async (request) => read(request, (await client(request)).resubscribeTask({ id: request.task })),
  get: async (request) =>
    (await client(request)).getTask({ id: request.task, ...("history" in request && { historyLength: request.history }) }),
  cancel: async (request) => (await client(request)).cancelTask({ id: request.task }),
  push_set: async (request) =>
    (await client(request)).setTaskPushNotificationConfig({
      taskId: request.task,
      pushNotificationConfig: pushConfig(request.push),
    }),
  push_get: async (request) => (await client(request)).getTaskPushNotificationConfig(named(request)),
  push_list: async (request) => (await client(request)).listTaskPushNotificationConfig(named(request)),
  push_delete: async (request) => (await client(request)).deleteTaskPushNotificationConfig(named(request)),
  // The SDK asks for it only where the card claims it: without a token it believes so.
  extended_card: async (request) => {
    const card = await fetched(request);
    const claimed = request.token ? card : { ...card, supportsAuthenticatedExtendedCard: true };
    const transports = [new JsonRpcTransportFactory({ fetchImpl: fetchShowing(request) })];
    return (await new ClientFactory({ transports }).createFromAgentCard(claimed)).getAgentCard();
  },
  // The client class of 0.2, which many programs still use.
  legacy: async (request) => {
    const old = await A2AClient.fromCardUrl(new URL(".well-known/agent-card.json", request.url).href);
    return (await old.sendMessage(params(request))).result;
  },
};

// In a stream the SDK wraps the JSON-RPC error in one of its own.
const codeOf = (error) => error?.errorResponse?.error?.code ?? (error?.cause ? codeOf(error.cause) : null);

await drive(operations, codeOf);
