// The official TypeScript SDK `@openai/codex-sdk`, which runs `exec --experimental-json`. Arguments: program, folder.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Codex } from "@openai/codex-sdk";
import { check } from "./checks.mjs";

const [program, folder] = process.argv.slice(2);
const codex = new Codex({ codexPathOverride: program });
const setup = { workingDirectory: folder, skipGitRepoCheck: true };
const thread = codex.startThread(setup);

await check("run", async () => {
  const turn = await thread.run("hello");
  assert.equal(turn.finalResponse, "hello");
  assert.deepEqual(turn.items.map(({ type }) => type), ["agent_message"]);
  assert.ok(turn.usage.input_tokens > 0);
});
await check("run again on the same thread", async () => {
  const id = thread.id;
  assert.equal((await thread.run("and again")).finalResponse, "and again");
  assert.equal(thread.id, id);
});
await check("streamed events", async () => {
  const { events } = await thread.runStreamed("stream me");
  const types = [];
  for await (const event of events) types.push(event.type);
  assert.equal(types[0], "thread.started");
  assert.ok(types.includes("turn.started") && types.includes("item.completed"), types.join());
  assert.equal(types.at(-1), "turn.completed");
});
await check("resume by id", async () => {
  const turn = await codex.resumeThread(thread.id, setup).run("resumed");
  assert.equal(turn.finalResponse, "resumed");
});
await check("structured output", async () => {
  const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
  const turn = await codex.startThread(setup).run('{"ok": true}', { outputSchema: schema });
  assert.deepEqual(JSON.parse(turn.finalResponse), { ok: true });
});
await check("a picture", async () => {
  const path = join(folder, "pixel.png");
  writeFileSync(path, Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", "base64"));
  const turn = await codex.startThread(setup).run([{ type: "text", text: "look" }, { type: "local_image", path }]);
  assert.match(turn.finalResponse, /^<image .*>look$/);
});
await check("every option of a thread", async () => {
  const options = {
    ...setup, model: "offline-echo", sandboxMode: "workspace-write", modelReasoningEffort: "high",
    networkAccessEnabled: false, webSearchEnabled: false, approvalPolicy: "never", additionalDirectories: ["/tmp"],
    threadSource: "sdk-test",
  };
  assert.equal((await codex.startThread(options).run("with options")).finalResponse, "with options");
});
await check("configuration of the client", async () => {
  const other = new Codex({
    codexPathOverride: program, config: { show_raw_agent_reasoning: true }, configOverrides: ['model_provider="offline"'] });
  assert.equal((await other.startThread(setup).run("configured")).finalResponse, "configured");
});
await check("a failed turn is thrown", async () => {
  const broken = new Codex({ codexPathOverride: program, config: { model_provider: "broken" } });
  await assert.rejects(broken.startThread(setup).run("this fails"), /scripted/);
});
await check("an aborted turn", async () => {
  const slow = new Codex({ codexPathOverride: program, config: { model_provider: "slow" } });
  const abort = new AbortController();
  const { events } = await slow.startThread(setup).runStreamed("never ends", { signal: abort.signal });
  await assert.rejects(async () => {
    for await (const event of events) if (event.type === "turn.started") abort.abort();
  });
});
await check("an unknown thread is refused", async () => {
  const lost = codex.resumeThread("01900000-0000-7000-8000-000000000000", setup);
  await assert.rejects(lost.run("anyone?"), /no rollout found/);
});
