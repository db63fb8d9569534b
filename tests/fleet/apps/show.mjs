// A host of MCP Apps: the official client asks two edges, and ext-apps' bridge shows a document in a real Chromium.
//
//     node show.mjs PAGES URL ANOTHER_URL PICTURE EXPECTED
//
// PAGES is the folder of host.html and sandbox.html, PICTURE is written, and EXPECTED is compared with it. The page of
// the host and its sandbox have two origins. Prints one line of JSON for a test to judge.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { extname, join, normalize } from "node:path";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const EXTENSION = "io.modelcontextprotocol/ui";
const TYPE = "text/html;profile=mcp-app";
const TYPES = { ".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript" };
const [pages, url, another, picture, expected] = process.argv.slice(2);

// Without a mode, the client begins a session of 2025.
async function client(edge, extensions, options = { versionNegotiation: { mode: "auto" } }) {
  const made = new Client({ name: "mcpfleet-tests", version: "1.0.0" }, { capabilities: { extensions }, ...options });
  await made.connect(new StreamableHTTPClientTransport(new URL(edge)));
  return made;
}

const named = (tools) => Object.fromEntries(tools.map(({ name, _meta }) => [name, _meta?.ui ?? null]));
const apps = { [EXTENSION]: { mimeTypes: [TYPE] } };
const [one, other, plain] = [await client(url, apps), await client(another, apps), await client(url, {})];
const former = [await client(url, apps, {}), await client(another, {}, {})];
const seen = { violations: [], errors: [], stray: [] };

// The client's view with Apps, and without.
const tools = (await one.listTools()).tools;
seen.tools = named(tools);
seen.toolsWithoutApps = named((await plain.listTools()).tools);
seen.toolsOf2025 = named((await former[0].listTools()).tools);
seen.toolsOf2025WithoutApps = named((await former[1].listTools()).tools);
seen.textWithoutApps = (await plain.callTool({ name: "stock", arguments: {} })).content[0].text;
const tool = tools.find(({ name }) => name === "stock");
const [document] = (await one.readResource({ uri: tool._meta.ui.resourceUri })).contents;
const result = await one.callTool({ name: "stock", arguments: {} });

// The two origins.
function served(answer) {
  const server = createServer(answer);
  return new Promise((done) => server.listen(0, "127.0.0.1", () => done({ server, port: server.address().port })));
}

function file(response, path, headers = {}) {
  response.writeHead(200, { "content-type": TYPES[extname(path)] ?? "application/octet-stream", ...headers });
  response.end(readFileSync(path));
}

const host = await served((request, response) => {
  const path = normalize(new URL(request.url, "http://x").pathname);
  if (path === "/host.html") file(response, join(pages, "host.html"));
  else if (path.startsWith("/node_modules/") && existsSync(`.${path}`)) file(response, `.${path}`);
  else {
    if (path !== "/favicon.ico") seen.stray.push(path);
    response.writeHead(404, { "access-control-allow-origin": "*" }).end();
  }
});

// As the specification has it.
function policy({ connectDomains = [], resourceDomains = [], frameDomains = [], baseUriDomains = [] }) {
  const resources = resourceDomains.join(" ");
  return [
    "default-src 'none'",
    `script-src 'self' 'unsafe-inline' ${resources}`,
    `style-src 'self' 'unsafe-inline' ${resources}`,
    `connect-src ${connectDomains.join(" ") || "'none'"}`,
    `img-src 'self' data: ${resources}`,
    `font-src 'self' ${resources}`,
    `media-src 'self' data: ${resources}`,
    `frame-src ${frameDomains.join(" ") || "'none'"}`,
    "object-src 'none'",
    `base-uri ${baseUriDomains.join(" ") || "'self'"}`,
    "report-uri /violations",
  ].join("; ");
}

const sandbox = await served((request, response) => {
  const asked = new URL(request.url, "http://x");
  if (asked.pathname === "/violations") {
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("end", () => {
      const { "effective-directive": directive, "blocked-uri": uri } = JSON.parse(Buffer.concat(parts))["csp-report"];
      seen.violations.push(`${directive} ${uri}`);
      response.writeHead(204).end();
    });
    return;
  }
  const csp = policy(JSON.parse(asked.searchParams.get("csp") ?? "{}"));
  file(response, join(pages, "sandbox.html"), { "content-security-policy": csp });
});

const executablePath = await chromium.executablePath();
const browser = await puppeteer.launch({
  executablePath,
  args: [...chromium.args, "--disable-dev-shm-usage"],
  headless: "shell",
  env: { ...process.env, FONTCONFIG_PATH: join(tmpdir(), "fonts") }, // its own fonts, the same on every machine
});
try {
  const page = await browser.newPage();
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  await page.setViewport({ width: 480, height: 640 });
  seen.calls = [];
  await page.exposeFunction("callServerTool", async (params) => {
    seen.calls.push(params);
    return await other.callTool(params);
  });
  await page.goto(`http://127.0.0.1:${host.port}/host.html`);
  await page.waitForFunction(() => window.isReady);
  const shown = { sandbox: `http://localhost:${sandbox.port}/`, html: document.text, meta: document._meta?.ui, tool, result };
  await page.evaluate((what) => window.show(what), shown);

  const view = await until(() => page.frames().find((frame) => frame.url() === "about:srcdoc"));
  const rows = () => view.evaluate(() => [...window.document.querySelectorAll("tr")].map((row) => row.innerText.split("\t").slice(0, 2)));
  await until(async () => (await rows()).length > 0);
  seen.origins = [await page.evaluate(() => location.origin), await view.evaluate(() => window.origin)];
  seen.before = await rows();
  seen.state = await view.$eval("#state", (each) => each.textContent);
  await view.evaluate(() => window.document.fonts.ready);
  const frame = await page.$("iframe");
  await until(async () => (await frame.boundingBox()).height > 100);
  await view.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const taken = await frame.screenshot();
  writeFileSync(picture, taken);
  seen.differs = existsSync(expected) ? await difference(page, taken, readFileSync(expected)) : null;
  seen.violationsBefore = [...seen.violations];

  await view.click('button[data-name="Clocks"]');
  await until(async () => JSON.stringify(await rows()) !== JSON.stringify(seen.before));
  seen.after = await rows();

  seen.undeclared = await view.evaluate(
    (address) => fetch(address).then(({ status }) => status, (error) => error.name),
    `http://127.0.0.1:${host.port}/undeclared`,
  );
  await until(() => seen.violations.length > seen.violationsBefore.length);
  await page.evaluate(() => window.bridge.teardownResource({}));
} finally {
  await browser.close();
}
console.log(JSON.stringify(seen));
process.exit(0);

/** Wait for something that is true, and return it. */
async function until(holds) {
  const last = performance.now() + 20_000;
  for (;;) {
    const found = await holds();
    if (found) return found;
    if (performance.now() > last) throw new Error(`never: ${holds}`);
    await new Promise((done) => setTimeout(done, 20));
  }
}

/** The part of the pixels in which two pictures differ; all of them where their sizes do. */
async function difference(page, ...pictures) {
  const texts = pictures.map((each) => `data:image/png;base64,${Buffer.from(each).toString("base64")}`);
  return await page.evaluate(async (addresses) => {
    const [one, other] = await Promise.all(
      addresses.map(async (address) => {
        const image = new Image();
        image.src = address;
        await image.decode();
        const canvas = Object.assign(window.document.createElement("canvas"), { width: image.width, height: image.height });
        const context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, image.width, image.height);
      }),
    );
    if (one.width !== other.width || one.height !== other.height) return 1;
    let differing = 0;
    for (let at = 0; at < one.data.length; at += 4)
      if ([0, 1, 2].some((part) => Math.abs(one.data[at + part] - other.data[at + part]) > 8)) differing++;
    return differing / (one.width * one.height);
  }, texts);
}
