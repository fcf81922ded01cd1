const HUB = process.env.ROLECALL_HUB ?? "http://127.0.0.1:8420";
const SEQUENCE = "https://rolecall.dev/ext/sequence/v1";
const headers = { "Content-Type": "application/json", "A2A-Version": "1.0", "A2A-Extensions": SEQUENCE };
if (process.env.ROLECALL_TOKEN) headers.Authorization = `Bearer ${process.env.ROLECALL_TOKEN}`;

/** The events of a stream, with their numbers. */
async function* events(method, params) {
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
  const answer = await fetch(`${HUB}/agents/counter/`, { method: "POST", headers, body });
  let rest = "";
  for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    for (const line of lines.filter((line) => line.startsWith("data: "))) {
      const [event] = Object.values(JSON.parse(line.slice(6)).result);
      yield [event.metadata[SEQUENCE].sequence, event];
    }
  }
}

const show = (event) => event.artifact?.parts.forEach((part) => process.stdout.write(part.text ?? ""));
const message = { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text: "9" }] };
let last, task;
for await (const [sequence, event] of events("SendStreamingMessage", { message })) {
  [last, task] = [sequence, event.id ?? event.taskId];
  show(event);
  if (last === 5) break;
}
process.stdout.write("(cut) ");
for await (const [sequence, event] of events("SubscribeToTask", { id: task, metadata: { [SEQUENCE]: { after: last } } }))
  if (sequence > last) show(event); // the first one is the Task as it was then
console.log();
