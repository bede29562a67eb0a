// What the Node clients share: the questions, and the telling of what came of them, a line of JSON for each scenario.
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

export const BASE_URL = process.env.BASE_URL;
export const KEY = 'sk-test';
export const SHORT_MS = 1000;
export const TURNS = ['Question 1', 'Question 2', 'Question 3'];
export const PICTURE = 'data:image/png;base64,iVBORw0KGgo=';
export const WEATHER = {
  type: 'object', properties: { city: { type: 'string' } }, required: ['city'], additionalProperties: false,
};

const require = createRequire(pathToFileURL(process.env.CLIENT_MODULES + '/').href);

// Packages are in the client's own environment, not beside this file.
export const load = async (name) => import(pathToFileURL(require.resolve(name)).href);

export const headers = (scenario, session = false) => ({
  'X-Mneme-User': `${process.env.USER_PREFIX}-${scenario}`,
  'X-Mneme-Label': process.env.USER_PREFIX,
  ...(session ? { 'X-Mneme-Session': 'mine' } : {}),
});

export async function run(scenarios) {
  for (const [scenario, play] of Object.entries(scenarios)) {
    let told;
    try {
      told = { scenario, result: await play() };
    } catch (error) {
      told = { scenario, raised: `${error?.name}: ${error?.message}`.slice(0, 500) };
    }
    console.log(JSON.stringify(told));
  }
  process.exit(0); // whatever a client keeps open
}
