// OpenAI's SDK for Node.
import { BASE_URL, KEY, PICTURE, SHORT_MS, TURNS, WEATHER, headers, load, run } from './scenarios.mjs';

const module = await load('openai');
const OpenAI = module.default?.OpenAI ?? module.OpenAI ?? module.default;
const { zodResponseFormat } = await load('openai/helpers/zod');
const { z } = await load('zod');

const client = (scenario, session = false, more = {}) =>
  new OpenAI({ baseURL: BASE_URL, apiKey: KEY, maxRetries: 0, defaultHeaders: headers(scenario, session), ...more });
const user = (content) => ({ role: 'user', content });
const ask = (scenario, messages, model = 'text', more = {}, session = false) =>
  client(scenario, session).chat.completions.create({ model, messages, ...more });

await run({
  chat: async () => (await ask('chat', [user('hi')])).choices[0].message.content,
  stream: async () => {
    const pieces = [];
    for await (const chunk of await ask('stream', [user('hi')], 'text', { stream: true })) {
      if (chunk.choices[0]?.delta?.content) pieces.push(chunk.choices[0].delta.content);
    }
    return { text: pieces.join(''), pieces: pieces.length };
  },
  tools: async () => {
    const tools = [{ type: 'function', function: { name: 'weather', parameters: WEATHER } }];
    const made = await ask('tools', [user('weather?')], 'tools', { tools });
    return made.choices[0].message.tool_calls.map((each) => [each.function.name, JSON.parse(each.function.arguments)]);
  },
  structured: async () => {
    const Cat = z.object({ name: z.string(), age: z.number() });
    const made = await client('structured').chat.completions.parse({
      model: 'json', messages: [user('cat?')], response_format: zodResponseFormat(Cat, 'cat'),
    });
    return made.choices[0].message.parsed;
  },
  error: async () => {
    try {
      await ask('error', [user('hi')], 'error-429');
    } catch (error) {
      return { status: error.status, message: error.message };
    }
    return {};
  },
  timeout: async () => {
    try {
      await client('timeout', false, { timeout: SHORT_MS }).chat.completions.create({
        model: 'never', messages: [user('hi')],
      });
    } catch (error) {
      return error instanceof OpenAI.APIConnectionTimeoutError;
    }
    return false;
  },
  abort: async () => {
    const stream = await ask('abort', [user('hi')], 'stall', { stream: true });
    for await (const chunk of stream) {
      stream.controller.abort();
      return chunk.choices[0].delta.content;
    }
    return null;
  },
  turns: async () => {
    const transcript = [];
    for (const text of TURNS) {
      transcript.push(user(text));
      transcript.push((await ask('turns', transcript)).choices[0].message);
    }
    return transcript.length;
  },
  session: async () => {
    let count = 0;
    for (const text of TURNS) {
      await ask('session', [user(text)], 'text', {}, true);
      count += 1;
    }
    return count;
  },
  image: async () => {
    const parts = [{ type: 'text', text: 'What is this?' }, { type: 'image_url', image_url: { url: PICTURE } }];
    return (await ask('image', [user(parts)])).choices[0].message.content;
  },
  responses: async () => {
    const made = client('responses');
    const first = await made.responses.create({ model: 'text', input: 'Question 1' });
    const stream = made.responses.stream({ model: 'text', input: 'Question 2', previous_response_id: first.id });
    return [first.output_text, (await stream.finalResponse()).output_text];
  },
});
