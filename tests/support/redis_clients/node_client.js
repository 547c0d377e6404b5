// Takes IDs by ioredis or node-redis, as their READMEs show, and prints them, one a line.
// Usage: node node_client.js ioredis|node-redis|node-redis-3 PORT TAG COUNT alone|pipelined|pool|steady|error
"use strict";

const [library, port, tag, countText, mode] = process.argv.slice(2);
const count = Number(countText);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function connect() {
  if (library === "ioredis") {
    const Redis = require("ioredis");
    const client = new Redis({ host: "127.0.0.1", port: Number(port) });
    client.on("error", () => {});
    return { client, incr: () => client.incr(tag), pipeline: async (depth) => {
      const pipeline = client.pipeline();
      for (let i = 0; i < depth; ++i) pipeline.incr(tag);
      return (await pipeline.exec()).map(([error, id]) => {
        if (error) throw error;
        return id;
      });
    }, call: (...words) => client.call(...words), close: () => client.quit() };
  }
  const { createClient } = require("redis");
  const options = { socket: { host: "127.0.0.1", port: Number(port) } };
  if (library === "node-redis-3") options.RESP = 3;
  const client = createClient(options);
  client.on("error", () => {});
  await client.connect();
  return { client, incr: () => client.incr(tag), pipeline: async (depth) => {
    let multi = client.multi();
    for (let i = 0; i < depth; ++i) multi = multi.incr(tag);
    return multi.exec();
  }, call: (...words) => client.sendCommand(words), close: () => client.quit() };
}

async function main() {
  if (mode === "pool") {
    const pool = await Promise.all(Array.from({ length: 8 }, connect));
    const ids = await Promise.all(Array.from({ length: count }, (_, i) => pool[i % 8].incr()));
    ids.forEach((id) => console.log(String(id)));
    await Promise.all(pool.map((one) => one.close()));
    return;
  }
  const one = await connect();
  if (mode === "error") {
    await one.incr().then(() => console.log("no error"), (error) => console.log(error.message));
  } else if (mode === "pipelined") {
    for (let taken = 0; taken < count; taken += 50)
      (await one.pipeline(Math.min(50, count - taken))).forEach((id) => console.log(String(id)));
  } else if (mode === "exact") {
    // IDs above 2^53 as text: a number of JavaScript would not hold them.
    (await one.call("LEAF.NEXT", tag, String(count))).forEach((id) => console.log(String(id)));
  } else {
    for (let taken = 0; taken < count;) {
      try {
        console.log(String(await one.incr()));
        ++taken;
      } catch (error) {
        if (mode !== "steady") throw error;
        await pause(20);
      }
    }
  }
  await one.close();
}

main().then(() => process.exit(0), (error) => {
  console.error(String(error));
  process.exit(1);
});
