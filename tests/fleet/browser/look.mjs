// Opens a page in a real Chromium and says, several times a second, what stands in it and what went wrong in it.
// Usage: node look.mjs URL light|dark WIDTH [PICTURE]; lines of JSON on standard output; it ends when its input does.
// A line of its input is done in the page: `press KEY`, `click SELECTOR`, `back`, or `reduce` for less motion.
import { createInterface } from "node:readline";
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [url, scheme, width, picture] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: await chromium.executablePath(),
  args: [...chromium.args, "--disable-dev-shm-usage"],
  headless: "shell",
});
let over = false;
const wishes = [];
const input = createInterface({ input: process.stdin });
input.on("line", (line) => wishes.push(line.split(" ")));
input.on("close", () => (over = true));

const page = await browser.newPage();
const errors = [];
page.on("console", (message) => errors.push(`${message.type()}: ${message.text()}`));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("requestfailed", (request) => {
  // A page that is left ends its stream.
  if (!request.url().includes("/console/events") || request.failure()?.errorText !== "net::ERR_ABORTED")
    errors.push(`${request.url()}: ${request.failure()?.errorText}`);
});
page.on("request", (request) => {
  const isElsewhere = new URL(request.url()).origin !== new URL(page.url()).origin;
  if (isElsewhere && !request.isNavigationRequest() && !request.url().startsWith("data:"))
    errors.push(`asked elsewhere: ${request.url()}`);
});
const motion = { name: "prefers-reduced-motion", value: "no-preference" };
await page.setViewport({ width: Number(width), height: 1000, isMobile: Number(width) < 600, hasTouch: Number(width) < 600 });
const feign = () => page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }, motion]);
await feign();
await page.goto(url, { waitUntil: "domcontentloaded" });

async function grant([wish, ...rest]) {
  if (wish === "press") await page.keyboard.press(rest[0]);
  else if (wish === "click") await page.click(rest.join(" "));
  else if (wish === "back") await page.goBack({ waitUntil: "domcontentloaded" });
  else if (wish === "reduce") {
    motion.value = "reduce";
    await feign();
  } else errors.push(`no such wish: ${wish}`);
}

// Between two pages there is nothing to see.
async function look() {
  try {
    return await page.evaluate(seen);
  } catch (error) {
    if (/navigation|detached/i.test(String(error))) return null;
    throw error;
  }
}

function seen() {
  if (document.readyState === "loading") return null;
  const own = document.getElementById("own");
  const tiles = (id) =>
    Object.fromEntries([...document.querySelectorAll(`#${id} > div`)].map((each) => [each.dataset.key, each.lastChild.textContent]));
  const rows = (id) =>
    [...document.querySelectorAll(`#${id} tbody tr`)].map((each) => [...each.children].map((cell) => cell.textContent));
  const charts = (id) =>
    [...document.querySelectorAll(`#${id} svg`)].map((each) => ({
      label: each.getAttribute("aria-label"),
      points: Number(each.dataset.points),
      drawn: Boolean(each.querySelector("path").getAttribute("d")),
    }));

  const luminance = ([red, green, blue]) => {
    const part = (value) => (value / 255 <= 0.03928 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
  };
  const colour = (text) => text.match(/[\d.]+/g).map(Number);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const found = colour(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const visible = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const parent = walk.currentNode.parentElement;
    if (walk.currentNode.data.trim() && parent.checkVisibility() && !["SCRIPT", "NOSCRIPT"].includes(parent.tagName))
      visible.push([walk.currentNode, parent]);
  }
  const faint = [];
  const broken = [];
  for (const [text, parent] of visible) {
    const [one, other] = [luminance(colour(getComputedStyle(parent).color)), luminance(behind(parent))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (contrast < 4.5) faint.push(`${text.data}: ${contrast.toFixed(2)}`);
    for (const word of parent.closest("code, .code") ? [] : text.data.matchAll(/[\p{L}\p{N}]{1,24}/gu)) {
      const range = document.createRange();
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((each) => Math.round(each.top))).size > 1) broken.push(word[0]);
    }
  }

  const active = document.activeElement;
  const ringed = [active, active.closest("tr")].some((each) => each && getComputedStyle(each).outlineStyle !== "none");
  return {
    url: location.pathname + location.search,
    title: document.title,
    state: document.getElementById("link")?.dataset.state,
    says: document.getElementById("link")?.textContent,
    text: document.body.innerText,
    background: getComputedStyle(document.body).backgroundColor,
    moves: parseFloat(getComputedStyle(document.querySelector("a")).transitionDuration) > 0,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    faint,
    broken,
    focus: active === document.body ? "" : active.textContent,
    ringed: active !== document.body && ringed,
    totals: tiles("totals"),
    tasks: tiles("tasks"),
    tools: rows("tools"),
    nodes: rows("nodes"),
    stuck: rows("stuck"),
    troubles: rows("troubles"),
    charts: charts("charts"),
    links: [...document.querySelectorAll("#troubles a")].map((each) => each.href),
    own: own && !own.hidden
      ? { name: document.getElementById("own-title").textContent, note: document.getElementById("own-note").textContent,
          figures: tiles("own-figures"), charts: charts("own-charts"), troubles: rows("own-troubles") }
      : null,
    scripts: document.scripts.length,
  };
}

while (!over) {
  if (wishes.length) await grant(wishes.shift());
  const found = await look();
  if (found) console.log(JSON.stringify({ ...found, errors }));
  if (picture) await page.screenshot({ path: picture, fullPage: true });
  if (!wishes.length) await new Promise((done) => setTimeout(done, 250));
}
await browser.close();
process.exit(0);
