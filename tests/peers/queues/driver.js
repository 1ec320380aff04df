// One flow of the published package in a process of its own. A test writes commands to it, a JSON object a line, and
// reads answers and events. What a worker function does is the test's to say: it is asked for every job.
"use strict";

const readline = require("readline");
const correlator = require("correlation-id");
const { Flow, FlowMonitor } = require("@guildxyz/queues");

const { url, flow: definition } = JSON.parse(process.argv[2]);
const redisClientOptions = { url };
const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const told = (level) => (message, details = {}) =>
  say({ event: "log", level, message, error: details.error && String(details.error), jobId: details.jobId });
const logger = { debug: told("debug"), verbose: told("verbose"), info: told("info"), warn: told("warn"), error: told("error") };

const flow = new Flow({ ...definition, redisClientOptions, logger, correlator });
const workers = [];
const monitors = [];
const asked = new Map();

const ask = (queue) => (job) =>
  new Promise((resolve, reject) => {
    const call = asked.size;
    asked.set(call, { resolve, reject });
    say({ event: "job", call, queue, job });
  });

const commands = {
  create: ({ options, correlationId }) =>
    correlationId ? correlator.withId(correlationId, () => flow.createJob(options)) : flow.createJob(options),
  find: ({ attribute, value, children }) => flow.getJobsByKey(attribute, value, children),
  delete: ({ id }) => flow.deleteJob(id),
  workers: ({ queue, count, lock, block }) => enlist(flow.createWorkers(queue, ask(queue), count, lock, block)),
  parents: ({ queue, count, lock, block }) => enlist(flow.createParentWorkers(queue, count, lock, block)),
  children: ({ queue, child, count, lock, block }) =>
    enlist(flow.createChildWorkers(queue, child, ask(`${queue}:${child}`), count, lock, block)),
  monitor: async ({ name, queues, interval }) => {
    const monitor = new FlowMonitor({ redisClientOptions, flowName: name, queueNames: queues, logger, intervalMs: interval });
    monitors.push(monitor);
    await monitor.start();
  },
  status: () => workers.map((worker) => worker.status),
  stop: async () => {
    await Promise.all(workers.map((worker) => worker.stop()));
    await Promise.all([...workers.map((worker) => worker.disconnect()), ...monitors.map((monitor) => monitor.stop())]);
    await flow.disconnect();
  },
};

const enlist = async (created) => {
  workers.push(...created);
  await Promise.all(created.map((worker) => worker.connect()));
  await Promise.all(created.map((worker) => worker.start()));
};

const obey = async ({ number, command, ...said }) => {
  try {
    say({ event: "answer", number, value: (await commands[command](said)) ?? null });
  } catch (error) {
    say({ event: "answer", number, error: String(error) });
  }
};

const main = async () => {
  await flow.connect();
  say({ event: "ready" });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const message = JSON.parse(line);
    if (message.command) {
      obey(message);
    } else if ("error" in message) {
      asked.get(message.call).reject(new Error(message.error));
    } else {
      asked.get(message.call).resolve(message.result);
    }
  }
  process.exit(0);
};

main();
