// Vercel's AI SDK: its provider for servers compatible with OpenAI, and, for the Responses API, the one for OpenAI.
import { BASE_URL, KEY, PICTURE, SHORT_MS, TURNS, headers, load, run } from './scenarios.mjs';

const { generateText, streamText, tool, Output } = await load('ai');
const { createOpenAICompatible } = await load('@ai-sdk/openai-compatible');
const { createOpenAI } = await load('@ai-sdk/openai');
const { z } = await load('zod');

const model = (scenario, name = 'text', session = false) =>
  createOpenAICompatible({
    name: 'mneme', baseURL: BASE_URL, apiKey: KEY, headers: headers(scenario, session), supportsStructuredOutputs: true,
  })(name);
const ask = (scenario, more, name = 'text', session = false) =>
  generateText({ model: model(scenario, name, session), maxRetries: 0, ...more });

await run({
  chat: async () => (await ask('chat', { prompt: 'hi' })).text,
  stream: async () => {
    const pieces = [];
    for await (const piece of streamText({ model: model('stream'), prompt: 'hi', maxRetries: 0 }).textStream) {
      pieces.push(piece);
    }
    return { text: pieces.join(''), pieces: pieces.length };
  },
  tools: async () => {
    const weather = tool({ description: 'The weather.', inputSchema: z.object({ city: z.string() }) });
    const made = await ask('tools', { prompt: 'weather?', tools: { weather } }, 'tools');
    return made.toolCalls.map((each) => [each.toolName, each.input]);
  },
  structured: async () => {
    const output = Output.object({ schema: z.object({ name: z.string(), age: z.number() }) });
    return (await ask('structured', { prompt: 'cat?', output }, 'json')).output;
  },
  error: async () => {
    try {
      await ask('error', { prompt: 'hi' }, 'error-429');
    } catch (error) {
      return { status: error.statusCode, message: error.message };
    }
    return {};
  },
  timeout: async () => {
    try {
      await ask('timeout', { prompt: 'hi', abortSignal: AbortSignal.timeout(SHORT_MS) }, 'never');
    } catch (error) {
      return /timeout|abort/i.test(`${error.name} ${error.message}`);
    }
    return false;
  },
  abort: async () => {
    const stopping = new AbortController();
    const made = streamText({
      model: model('abort', 'stall'), prompt: 'hi', maxRetries: 0, abortSignal: stopping.signal, onError: () => {},
    });
    for await (const piece of made.textStream) {
      stopping.abort();
      return piece;
    }
    return null;
  },
  turns: async () => {
    const messages = [];
    for (const text of TURNS) {
      messages.push({ role: 'user', content: text });
      const made = await ask('turns', { messages });
      messages.push({ role: 'assistant', content: made.text });
    }
    return messages.length;
  },
  session: async () => {
    let count = 0;
    for (const text of TURNS) {
      await ask('session', { prompt: text }, 'text', true);
      count += 1;
    }
    return count;
  },
  image: async () => {
    const image = new Uint8Array(Buffer.from(PICTURE.split(',')[1], 'base64'));
    const content = [{ type: 'text', text: 'What is this?' }, { type: 'file', data: image, mediaType: 'image/png' }];
    return (await ask('image', { messages: [{ role: 'user', content }] })).text;
  },
  responses: async () => {
    const openai = createOpenAI({ baseURL: BASE_URL, apiKey: KEY, headers: headers('responses') });
    const first = await generateText({ model: openai.responses('text'), prompt: 'Question 1', maxRetries: 0 });
    const previousResponseId = first.providerMetadata.openai.responseId;
    const second = streamText({
      model: openai.responses('text'), prompt: 'Question 2', maxRetries: 0, providerOptions: { openai: { previousResponseId } },
    });
    return [first.text, await second.text];
  },
});
