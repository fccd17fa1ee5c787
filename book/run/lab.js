// A lab in this page: its threads are Workers on one memory, and its files are the page's.
{
    const RESTING = 9; // a lab's main thread and eight ranks
    const PAGES = 3072; // of 64 KiB: what .cargo/config.toml gives the module at its start
    shardlab.most = [16384, 8192, 4096]; // a GiB, or what the browser allows of it

    const folder = new URL("run/", document.baseURI);

    // Whether labs can run on this page, at once or after `shareMemory`: where browsers let a page share memory, and where the
    // labs lie beside the book. A page that is opened as a file cannot.
    async function canRun() {
        const shares = globalThis.crossOriginIsolated || (isSecureContext && "serviceWorker" in navigator);
        if (typeof WebAssembly !== "object" || location.protocol === "file:" || !shares) return false;
        const found = await fetch(new URL("version.txt", folder)).catch(() => ({}));
        version = found.ok && (await found.text()).trim();
        return Boolean(version);
    }
    // That of the labs that lie beside the book. With it in their address a browser may keep them, as it has compiled them.
    let version;
    shardlab.canRun = canRun();

    // Loads the page again with the headers that its server did not send, so that Workers may share memory.
    shardlab.shareMemory = async () => {
        await navigator.serviceWorker.register(new URL("headers.js", document.baseURI));
        await navigator.serviceWorker.ready;
        location.reload();
    };

    // The module, and the address of a Worker's script: both are fetched once, however many ranks run.
    async function load() {
        const [module, script] = await Promise.all([
            WebAssembly.compileStreaming(fetch(new URL(`labs.wasm?v=${version}`, folder))).catch(error => {
                if (!(error instanceof WebAssembly.CompileError)) throw error;
                throw new Error(`this browser's WebAssembly lacks threads or vector instructions (simd128): ${error.message}`);
            }),
            fetch(new URL("worker.js", folder)).then(answer => answer.blob()),
        ]);
        const address = URL.createObjectURL(new Blob([script], { type: "text/javascript" }));
        rest(address);
        return { module, script: address };
    }

    // Workers without a thread. To make one takes longer than a small lab runs, so there are some before they are needed.
    const idle = [];
    const rest = script => {
        while (idle.length < RESTING) idle.push(new Worker(script));
    };

    let loading;
    shardlab.loadLabs = () => loading ??= load().catch(error => {
        loading = undefined;
        throw error;
    });

    function memory() {
        for (const maximum of shardlab.most) {
            try {
                return new WebAssembly.Memory({ initial: PAGES, maximum, shared: true });
            } catch (error) {
                if (!(error instanceof RangeError)) throw error;
            }
        }
        throw new Error("this browser gives a page less than 256 MB");
    }

    // Runs a lab: `args` are its name and its flags. `write` gets what it prints, and `ended` its exit code and, where it
    // could not go on, why. Returns a function that stops it.
    shardlab.runLab = ({ module, script }, args, files, write, ended) => {
        const shared = memory();
        // The number of the next thread, and of texts that threads have written.
        const counts = new SharedArrayBuffer(8);
        new Int32Array(counts)[0] = 1;
        let [heard, last] = [0, null];
        // Each thread's words come by themselves, so they may come in another order than they were written in.
        const early = new Map();
        const hear = text => {
            early.set(text.number, text);
            for (; early.has(heard); heard++) {
                const { wrote, file } = early.get(heard);
                early.delete(heard);
                for (const part of wrote) write(decoders[file - 1].decode(part, { stream: true }), file);
            }
        };
        const variables = ["TERM=xterm-256color", "COLUMNS=80", `SHARDLAB_CORES=${navigator.hardwareConcurrency}`];
        const workers = new Map();
        const decoders = [1, 2].map(() => new TextDecoder());
        let over = false;
        const end = (code, why) => {
            if (over) return;
            over = true;
            // They may be waiting for each other.
            workers.forEach(worker => worker.terminate());
            ended(code, why);
            rest(script);
        };
        const start = (thread, argument) => {
            const worker = idle.pop() ?? new Worker(script);
            const cell = new SharedArrayBuffer(8);
            const answer = new Int32Array(cell);
            workers.set(thread, worker);
            worker.onerror = event => end(134, event.message);
            worker.onmessage = ({ data }) => {
                if (over) return;
                if (data.ask) {
                    let found;
                    try {
                        found = files.call(shared, data.ask, data.given);
                    } catch (error) {
                        return end(134, `${data.ask}: ${error}`);
                    }
                    answer[1] = found;
                    Atomics.store(answer, 0, 1);
                    Atomics.notify(answer, 0);
                } else if (data.wrote) hear(data);
                else if (data.spawn) start(data.spawn, data.argument);
                else if (data.ended) {
                    workers.delete(thread);
                    idle.push(worker);
                    // What it says from now on belongs to its next thread.
                    worker.onmessage = null;
                } else last ??= data;
                if (last && heard >= last.writes) end(last.exit, last.why ?? "");
            };
            worker.postMessage({ module, memory: shared, cell, counts, thread, argument, args, variables });
        };
        start(0);
        return () => end(130, "stopped");
    };

    // Runs a lab to its end with nobody watching. Returns what it has printed, its errors, its exit code, and why it could not go on.
    shardlab.outcome = async (args, files) => {
        const labs = await shardlab.loadLabs();
        const written = ["", "", ""];
        const write = (text, file) => { written[file] += text; };
        const [code, why] = await new Promise(done => shardlab.runLab(labs, args, files, write, (...end) => done(end)));
        return { printed: written[1], errors: written[2].trim(), code, why };
    };
}
