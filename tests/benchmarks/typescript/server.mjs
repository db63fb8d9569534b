// The official TypeScript SDK's server with one tool, as its documentation starts it over HTTP; it prints its URL.
//
//     node server.mjs

import { createServer } from 'node:http';

import { localhostHostValidation, localhostOriginValidation, toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod/v4';

const BACKLOG = 2048;

// The documentation wants the factory cheap: schemas made in it, for each request, would cost a third of all calls.
const description = 'Add two integers.';
const inputSchema = z.object({ left: z.int(), right: z.int() });
const outputSchema = z.object({ result: z.int() });

/** Make the server that one request gets: the SDK wants a new one for each. */
function made() {
    const server = new McpServer({ name: 'reference', version: '1.0.0' });
    server.registerTool('add', { description, inputSchema, outputSchema }, async ({ left, right }) => {
        const output = { result: left + right };
        return { content: [{ type: 'text', text: JSON.stringify(output) }], structuredContent: output };
    });
    return server;
}

// As it is by default, an answer is JSON unless a notification came before it; to demand JSON prints a warning.
const answer = toNodeHandler(createMcpHandler(made));
const validateHost = localhostHostValidation();
const validateOrigin = localhostOriginValidation();

const listening = createServer((request, response) => {
    if (validateHost(request, response) && validateOrigin(request, response)) void answer(request, response);
});
listening.listen({ host: '127.0.0.1', port: 0, backlog: BACKLOG }, () => {
    console.log(`http://127.0.0.1:${listening.address().port}/mcp`);
});
