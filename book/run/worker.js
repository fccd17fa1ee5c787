// One thread of a lab: the program's own (`thread` 0), or a rank's. All threads have the same module and the same memory.
// What a thread asks of its system it does here, where it can; files belong to the page, which it asks and waits for.

let memory, cell, view, counts;
const THREADS = 0, WRITES = 1; // what `counts` has
const bytes = () => new Uint8Array(memory.buffer);
const words = () => {
    // A memory that has grown has another buffer.
    if (view?.buffer !== memory.buffer) view = new DataView(memory.buffer);
    return view;
};
const BAD_FILE = 8, INVALID = 28;

// What the page does in the meantime, and its answer: an error's number, or 0.
function ask(name, ...given) {
    Atomics.store(cell, 0, 0);
    postMessage({ ask: name, given });
    // Its wake-up for the call before may come as late as now.
    while (Atomics.load(cell, 0) === 0) Atomics.wait(cell, 0, 0);
    return Atomics.load(cell, 1);
}

// Where strings and their ends lie, as C has them.
function texts(all) {
    const encoded = all.map(text => new TextEncoder().encode(`${text}\0`));
    const sizes = (count, size) => {
        words().setUint32(count, all.length, true);
        words().setUint32(size, encoded.reduce((sum, text) => sum + text.length, 0), true);
        return 0;
    };
    const get = (places, at) => {
        encoded.forEach((text, i) => {
            words().setUint32(places + 4 * i, at, true);
            bytes().set(text, at);
            at += text.length;
        });
        return 0;
    };
    return [sizes, get];
}

// The end of a lab. The page hears from each thread by itself, so it is told how much it must have heard before.
const over = how => postMessage({ ...how, writes: Atomics.load(counts, WRITES) });

const now = clock => clock === 0 ? performance.timeOrigin + performance.now() : performance.now();

function system(args, variables) {
    const [args_sizes_get, args_get] = texts(args);
    const [environ_sizes_get, environ_get] = texts(variables);
    return {
        args_sizes_get, args_get, environ_sizes_get, environ_get,
        clock_res_get(_, out) {
            words().setBigUint64(out, 1000n, true);
            return 0;
        },
        clock_time_get(clock, _, out) {
            words().setBigUint64(out, BigInt(Math.round(1e6 * now(clock))), true);
            return 0;
        },
        random_get(at, length) {
            // The browser fills no shared memory.
            const part = new Uint8Array(Math.min(length, 65536));
            for (let done = 0; done < length; done += part.length) {
                crypto.getRandomValues(part);
                bytes().set(part.subarray(0, Math.min(part.length, length - done)), at + done);
            }
            return 0;
        },
        sched_yield: () => 0,
        // Only sleeping: the first subscription, if it is a clock's.
        poll_oneoff(subscriptions, events, _, count) {
            if (words().getUint8(subscriptions + 8) !== 0) return INVALID;
            const until = Number(words().getBigUint64(subscriptions + 24, true)) / 1e6;
            const absolute = words().getUint16(subscriptions + 40, true) & 1;
            const clock = words().getUint32(subscriptions + 16, true);
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, Math.max(0, absolute ? until - now(clock) : until));
            bytes().copyWithin(events, subscriptions, subscriptions + 8);
            bytes().fill(0, events + 8, events + 32);
            words().setUint32(count, 1, true);
            return 0;
        },
        proc_exit(code) {
            over({ exit: code });
            // The page ends all threads.
            Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
        },
        fd_write(file, parts, number, written) {
            if (file !== 1 && file !== 2) return ask("fd_write", file, parts, number, written);
            let [length, all] = [0, []];
            for (let i = 0; i < number; i++) {
                const [at, size] = [0, 4].map(place => words().getUint32(parts + 8 * i + place, true));
                all.push(bytes().slice(at, at + size));
                length += size;
            }
            postMessage({ wrote: all, file, number: Atomics.add(counts, WRITES, 1) });
            words().setUint32(written, length, true);
            return 0;
        },
        fd_fdstat_get(file, out) {
            if (file > 2) return ask("fd_fdstat_get", file, out);
            bytes().fill(0, out, out + 24);
            words().setUint8(out, 2); // a terminal
            return 0;
        },
        fd_read: (file, ...rest) => file < 3 ? BAD_FILE : ask("fd_read", file, ...rest),
    };
}

onmessage = async ({ data }) => {
    const { module, thread, argument, args, variables } = data;
    memory = data.memory;
    cell = new Int32Array(data.cell);
    counts = new Int32Array(data.counts);
    const ours = system(args, variables);
    const imports = {};
    for (const { module: from, name, kind } of WebAssembly.Module.imports(module)) {
        imports[from] ??= {};
        if (kind === "memory") imports[from][name] = memory;
        else if (name === "thread-spawn") {
            imports[from][name] = start => {
                const thread = Atomics.add(counts, THREADS, 1);
                postMessage({ spawn: thread, argument: start });
                return thread;
            };
        } else imports[from][name] = ours[name] ?? ((...given) => ask(name, ...given));
    }
    try {
        const { exports } = await WebAssembly.instantiate(module, imports);
        if (thread === 0) exports._start();
        else exports.wasi_thread_start(thread, argument);
        if (thread === 0) over({ exit: 0 });
        else postMessage({ ended: true });
    } catch (error) {
        over({ exit: 134, why: String(error) });
    }
};
