// Anthropic's SDK for Node: the scenarios of its Python sibling.
import { BASE_URL, WEATHER, headers, load, run } from './scenarios.mjs';

const module = await load('@anthropic-ai/sdk');
const Anthropic = module.default?.Anthropic ?? module.Anthropic ?? module.default;

const ROOT = BASE_URL.replace(/\/v1$/, '');
const FACT = 'My cat is called Minka and she is afraid of thunder.';
const QUESTION = [{ type: 'text', text: 'What is my cat called?', cache_control: { type: 'ephemeral' } }];

const client = (scenario, session = false) =>
  new Anthropic({ baseURL: ROOT, apiKey: 'unused', maxRetries: 0, defaultHeaders: headers(scenario, session) });
const user = (content) => ({ role: 'user', content });
const ask = (made, messages, more = {}) => made.messages.create({ model: 'text', max_tokens: 50, messages, ...more });

await run({
  // A fact, and a question about it in another conversation.
  chat: async () => {
    const made = client('chat');
    await ask(made, [user(FACT)], { system: 'Be brief.' });
    const { data, response } = await ask(made, [user(QUESTION)]).withResponse();
    return { text: data.content[0].text, stop: data.stop_reason, status: response.headers.get('x-mneme-status') };
  },
  stream: async () => {
    const pieces = [];
    const events = client('stream').messages.stream({ model: 'text', max_tokens: 50, messages: [user('hi')] });
    events.on('text', (piece) => pieces.push(piece));
    const message = await events.finalMessage();
    return { text: pieces.join(''), pieces: pieces.length, stop: message.stop_reason };
  },
  // A call, its result, and the answer: one conversation.
  tools: async () => {
    const made = client('tools');
    const tools = [{ name: 'weather', description: 'now', input_schema: WEATHER }];
    const asked = [user('How is the weather in Lisbon?')];
    const first = await ask(made, asked, { tools });
    const call = first.content.find((each) => each.type === 'tool_use');
    asked.push({ role: 'assistant', content: first.content });
    asked.push(user([{ type: 'tool_result', tool_use_id: call.id, content: 'sunny' }]));
    const last = await ask(made, asked, { tools });
    return { call: [call.name, call.input], text: last.content[0].text };
  },
  // The server has the history.
  session: async () => {
    const made = client('session', true);
    await ask(made, [user('First.')]);
    return (await ask(made, [user('How many?')])).content[0].text;
  },
  count: async () => (await client('count').messages.countTokens({ model: 'text', messages: [user('hi')] })).input_tokens,
  error: async () => {
    try {
      await client('error').messages.create(
        { model: 'text', max_tokens: 5, messages: [user('hi')] }, { headers: { 'X-Mneme-Memory': '?' } },
      );
      return [];
    } catch (refused) {
      return [refused.status, refused.error?.type, refused.error?.error?.type];
    }
  },
  // A page of the client's own leaves a stream.
  abort: async () => {
    const events = client('abort').messages.stream({ model: 'text', max_tokens: 50, messages: [user('hi')] });
    let said = '';
    for await (const event of events) {
      if (event.type !== 'content_block_delta') continue;
      said = event.delta.text;
      break;
    }
    return said;
  },
});
