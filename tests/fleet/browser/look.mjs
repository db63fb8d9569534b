// Opens a page in a real Chromium and says, several times a second, what stands in it and what went wrong in it.
// Usage: node look.mjs URL light|dark [PICTURE]; lines of JSON on standard output; it ends when its input does.
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [url, scheme, picture] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: await chromium.executablePath(),
  args: [...chromium.args, "--disable-dev-shm-usage"],
  headless: "shell",
});
let over = false;
process.stdin.on("end", () => (over = true));
process.stdin.resume();

const page = await browser.newPage();
const errors = [];
page.on("console", (message) => errors.push(`${message.type()}: ${message.text()}`));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("requestfailed", (request) => errors.push(`${request.url()}: ${request.failure()?.errorText}`));
page.on("request", (request) => {
  if (new URL(request.url()).origin !== new URL(url).origin && !request.url().startsWith("data:"))
    errors.push(`asked elsewhere: ${request.url()}`);
});
await page.setViewport({ width: 1200, height: 1000 });
await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
await page.goto(url, { waitUntil: "domcontentloaded" });

function seen() {
  const tiles = (id) =>
    Object.fromEntries([...document.querySelectorAll(`#${id} > div`)].map((each) => [each.dataset.key, each.lastChild.textContent]));
  const rows = (id) =>
    [...document.querySelectorAll(`#${id} tr`)].map((each) => [...each.children].map((cell) => cell.textContent));
  return {
    state: document.getElementById("link").dataset.state,
    background: getComputedStyle(document.body).backgroundColor,
    totals: tiles("totals"),
    tasks: tiles("tasks"),
    nodes: rows("nodes"),
    stuck: rows("stuck"),
    troubles: rows("troubles"),
    links: [...document.querySelectorAll("#troubles a")].map((each) => each.href),
    scripts: document.scripts.length,
  };
}

while (!over) {
  console.log(JSON.stringify({ ...(await page.evaluate(seen)), errors }));
  if (picture) await page.screenshot({ path: picture, fullPage: true });
  await new Promise((done) => setTimeout(done, 250));
}
await browser.close();
process.exit(0);
