// The client of @a2a-js/sdk 1.x. What it returns is written in the SDK's own JSON. `binding`: JSONRPC or HTTP+JSON.

import { randomUUID } from "node:crypto";
import {
  ListTasksRequest,
  ListTasksResponse,
  Message,
  Role,
  StreamResponse,
  Task,
  TaskPushNotificationConfig,
  ListTaskPushNotificationConfigsResponse,
} from "a2a-js-1x";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "a2a-js-1x/client";
import { drive, fetchAs, fetchShowing, kept, read } from "./lines.mjs";

// Only a card that is of 0.3 and nothing else needs the SDK's compatibility.
const compatible = ({ version }) => (version === "0.3" ? { legacyCompat: { enabled: true } } : {});

// `path`: "/" for the card at the URL itself.
const fetched = (request) =>
  new DefaultAgentCardResolver({ fetchImpl: fetchAs(request), ...compatible(request) }).resolve(request.url, request.path && "");

function factory(request) {
  const known = { JSONRPC: JsonRpcTransportFactory, "HTTP+JSON": RestTransportFactory };
  const transports = Object.values(known).map((Transport) => new Transport({ fetchImpl: fetchShowing(request), ...compatible(request) }));
  return new ClientFactory({ transports, preferredTransports: [request.binding] });
}

const client = kept((request) => factory(request).createFromUrl(request.url));

function content({ text, raw, url, data }) {
  if (text !== undefined) return { $case: "text", value: text };
  if (raw !== undefined) return { $case: "raw", value: Buffer.from(raw, "base64") };
  if (url !== undefined) return { $case: "url", value: url };
  return { $case: "data", value: data };
}

const part = (said) => ({
  content: content(said),
  metadata: said.metadata,
  filename: said.name ?? "",
  mediaType: said.mediaType ?? "",
});

const pushConfig = ({ id, url, token, scheme, credentials }, task = "") => ({
  tenant: "",
  taskId: task,
  id: id ?? "",
  url,
  token: token ?? "",
  authentication: scheme && { scheme, credentials },
});

const params = (request) => ({
  tenant: "",
  message: {
    messageId: request.message_id ?? randomUUID(),
    contextId: request.context ?? "",
    taskId: request.task ?? "",
    role: Role.ROLE_USER,
    parts: request.parts.map(part),
    metadata: request.metadata,
    extensions: [],
    referenceTaskIds: request.references ?? [],
  },
  configuration: {
    acceptedOutputModes: [],
    taskPushNotificationConfig: request.push && pushConfig(request.push),
    historyLength: request.history,
    returnImmediately: !(request.blocking ?? true),
  },
  metadata: undefined,
});

const answered = (result) =>
  "messageId" in result ? { message: Message.toJSON(result) } : { task: Task.toJSON(result) };
const streamed = (event) => StreamResponse.toJSON(event);
const named = ({ task, config }) => ({ tenant: "", taskId: task, id: config ?? "" });

const operations = {
  card: fetched,
  // `version`: by a card of that version.
  send: async (request) => {
    const chosen = "version" in request ? factory(request).createFromAgentCard(await fetched(request)) : client(request);
    return answered(await (await chosen).sendMessage(params(request)));
  },
  stream: async (request) => read(request, (await client(request)).sendMessageStream(params(request)), streamed),
  subscribe: async (request) =>
    read(request, (await client(request)).resubscribeTask({ tenant: "", id: request.task }), streamed),
  get: async (request) =>
    Task.toJSON(await (await client(request)).getTask({ tenant: "", id: request.task, historyLength: request.history })),
  cancel: async (request) =>
    Task.toJSON(await (await client(request)).cancelTask({ tenant: "", id: request.task, metadata: undefined })),
  list: async (request) =>
    ListTasksResponse.toJSON(await (await client(request)).listTasks(ListTasksRequest.fromJSON(request.query))),
  push_set: async (request) => {
    const config = pushConfig(request.push, request.task);
    return TaskPushNotificationConfig.toJSON(await (await client(request)).createTaskPushNotificationConfig(config));
  },
  push_get: async (request) =>
    TaskPushNotificationConfig.toJSON(await (await client(request)).getTaskPushNotificationConfig(named(request))),
  push_list: async (request) => {
    const asked = { tenant: "", taskId: request.task, pageSize: 0, pageToken: "" };
    return ListTaskPushNotificationConfigsResponse.toJSON(await (await client(request)).listTaskPushNotificationConfig(asked));
  },
  push_delete: async (request) => (await client(request)).deleteTaskPushNotificationConfig(named(request)),
  // The SDK asks for it only where the card claims it: without a token it believes so.
  extended_card: async (request) => {
    const card = await fetched(request);
    const claimed = request.token ? card : { ...card, capabilities: { ...card.capabilities, extendedAgentCard: true } };
    return (await factory(request).createFromAgentCard(claimed)).getAgentCard();
  },
};

const CODES = {
  TASK_NOT_FOUND: -32001,
  TASK_NOT_CANCELABLE: -32002,
  PUSH_NOTIFICATION_NOT_SUPPORTED: -32003,
  UNSUPPORTED_OPERATION: -32004,
  EXTENDED_AGENT_CARD_NOT_CONFIGURED: -32007,
  VERSION_NOT_SUPPORTED: -32009,
  INVALID_PARAMS: -32602,
};

// JSON-RPC has a code, REST a reason. In a stream the SDK wraps the error in one of its own.
const codeOf = (error) => error?.envelopeCode ?? CODES[error?.reason] ?? (error?.cause ? codeOf(error.cause) : null);

await drive(operations, codeOf);
