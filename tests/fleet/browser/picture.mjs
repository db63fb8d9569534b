// Takes pictures of pages in a real Chromium, each once something stands in it.
// Usage: node picture.mjs WIDTH HEIGHT SELECTOR URL PICTURE [URL PICTURE]…
import chromium from "@sparticuz/chromium";
import puppeteer from "puppeteer-core";

const [width, height, selector, ...pages] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: await chromium.executablePath(),
  args: [...chromium.args, "--disable-dev-shm-usage"],
  headless: "shell",
});
const page = await browser.newPage();
await page.setViewport({ width: Number(width), height: Number(height) });
for (let at = 0; at < pages.length; at += 2) {
  await page.evaluateOnNewDocument(() => localStorage.setItem("spanNameColumnWidth", "0.4"));
  await page.goto(pages[at], { waitUntil: "networkidle2" });
  await page.waitForSelector(selector, { timeout: 20000 });
  await new Promise((done) => setTimeout(done, 1500)); // its bars move to their places
  await page.screenshot({ path: pages[at + 1] });
}
await browser.close();
process.exit(0);
