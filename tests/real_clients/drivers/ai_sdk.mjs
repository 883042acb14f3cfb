// The provider `ai-sdk-provider-codex-cli` in app-server mode, below the AI SDK. Arguments: program, folder.
import assert from "node:assert/strict";
import { generateObject, generateText, streamText } from "ai";
import { createCodexAppServer, listModels } from "ai-sdk-provider-codex-cli";
import { z } from "zod";
import { check } from "./checks.mjs";

const [program, folder] = process.argv.slice(2);
const opened = (more = {}) =>
  createCodexAppServer({ defaultSettings: { codexPath: program, cwd: folder, logger: false, ...more } });
const provider = opened();
const model = provider("offline-echo");
const options = (more) => ({ providerOptions: { "codex-app-server": more } });
const ours = (result) => (result.finalStep ?? result).providerMetadata?.["codex-app-server"];
let kept;

await check("one text", async () => {
  const { text, usage } = await generateText({ model, prompt: "hello" });
  assert.equal(text, "User: hello");
  assert.ok(usage.totalTokens > 0);
});
await check("streamed text", async () => {
  const pieces = [];
  for await (const piece of streamText({ model, prompt: "one two three four" }).textStream) pieces.push(piece);
  assert.equal(pieces.join(""), "User: one two three four");
  assert.ok(pieces.length > 1, "it came in one piece");
});
await check("system instructions and earlier messages", async () => {
  const messages = [
    { role: "user", content: "first" },
    { role: "assistant", content: "said" },
    { role: "user", content: "last" },
  ];
  const { text } = await generateText({ model, instructions: "be brief", messages });
  assert.match(text, /last/);
});
await check("a persistent thread", async () => {
  const result = await generateText({ model, prompt: "keep this", ...options({ threadMode: "persistent" }) });
  kept = ours(result)?.threadId;
  assert.ok(kept);
});
await check("a thread is continued", async () => {
  const result = await generateText({ model, prompt: "and this", ...options({ threadId: kept }) });
  assert.equal(result.text, "and this");
  assert.equal(ours(result)?.threadId, kept);
});
await check("an object", async () => {
  const answers = opened({ configOverrides: { model_provider: "json" } });
  try {
    const schema = z.object({ name: z.string() });
    const { object } = await generateObject({ model: answers("offline-echo"), schema, prompt: "who?" });
    assert.deepEqual(object, { name: "unspool" });
  } finally {
    await answers.close();
  }
});
await check("a picture", async () => {
  const data = Buffer.from(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==", "base64");
  const content = [{ type: "text", text: "look" }, { type: "file", data, mediaType: "image/png" }];
  const { text } = await generateText({ model, messages: [{ role: "user", content }] });
  assert.match(text, /look/);
});
await check("an aborted stream", async () => {
  const script = opened({ configOverrides: { model_provider: "slow" } });
  try {
    const abort = new AbortController();
    const result = streamText({ model: script("offline-echo"), prompt: "never ends", abortSignal: abort.signal });
    for await (const part of result.stream ?? result.fullStream) {
      if (part.type === "text-delta") abort.abort();
      if (part.type === "abort") return;
    }
    assert.ok(abort.signal.aborted);
  } finally {
    await script.close();
  }
});
await check("texts side by side", async () => {
  const texts = await Promise.all([1, 2, 3, 4].map((n) => generateText({ model, prompt: `number ${n}` })));
  assert.deepEqual(texts.map(({ text }) => text), [1, 2, 3, 4].map((n) => `User: number ${n}`));
});
await check("models", async () => {
  const { models, defaultModel } = await provider.listModels();
  assert.ok(models.some(({ id }) => id === "offline-echo"));
  assert.equal(defaultModel?.id, "offline-echo");
});
await provider.close();
await check("a thread is resumed by another process", async () => {
  const other = opened();
  try {
    const result = await generateText({ model: other("offline-echo"), prompt: "later", ...options({ resume: kept }) });
    assert.equal(result.text, "later");
    assert.equal(ours(result)?.threadId, kept);
  } finally {
    await other.close();
  }
});
