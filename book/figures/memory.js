// The memory of one rank that trains a GPT: its state, the activations that the forward pass keeps, and what is there while
// the rank computes.
{
    const { area, bytes, curves, svg, table, text } = shardlab;
    const kinds = ["parameters", "gradients", "optimizer state", "activations of blocks", "activations at the ends", "while it computes"];
    const vocabulary = 50257;
    const each = { f32: [4, 4, 8], mixed: [2, 2, 12] };

    shardlab.memory = ({ layers, width, heads, sequence, micro, precision, flash, recompute, stage, ranks }) => {
        const block = 12 * width * width + 13 * width;
        const parameters = layers * block + (vocabulary + sequence + 2) * width;
        const state = each[precision].map((size, kind) =>
            stage >= 3 - kind ? Math.ceil(size * parameters / ranks) : size * parameters);
        // Bytes for each token. A block keeps 16 numbers of its width and two masks of a byte, and without FlashAttention
        // two copies of the scores and their mask. If it is computed again, it keeps its input.
        const tokens = micro * sequence;
        const number = each[precision][0];
        const whole = (16 * number + 2) * width + (flash ? 0 : (2 * number + 1) * heads * sequence);
        const blocks = layers * (recompute ? number * width : whole) * tokens;
        // A mask of the embedding, the last norm's input and result, and logits in f32.
        const logits = tokens * vocabulary;
        const ends = width * tokens + 2 * number * width * tokens + 4 * logits;
        // The block that is computed again, or copies of the logits; and the layers that stage 3 has gathered.
        const gathered = stage === 3 && ranks > 1 ? 3 * number * Math.max(block, vocabulary * width) : 0;
        const working = Math.max(recompute ? whole * tokens : 0, 6 * logits) + gathered;
        return { parameters, held: [...state, blocks, ends, working] };
    };

    const commas = value => value.toLocaleString("en");
    const gigabytes = value => `${value / 1e9} GB`;
    // The stages of ZeRO, for a page before the one that explains them.
    const shared = ["nothing", "the optimizer state (stage 1)", "gradients, too (stage 2)", "the whole state (stage 3)"];
    const controls = {
        layers: { label: "blocks <i>L</i>", values: [2, 4, 6, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 126], start: 32 },
        width: { label: "width <i>h</i>", values: [128, 256, 384, 512, 768, 1024, 1600, 2048, 2560, 4096, 5120, 6144, 8192, 12288, 16384],
                 start: 4096, words: commas },
        sequence: { label: "tokens <i>s</i>", start: 2048, words: commas,
                    values: [64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072] },
        micro: { label: "sequences <i>b</i>", values: [1, 2, 4, 8, 16, 32, 64], start: 1 },
        precision: { label: "numbers", values: ["mixed", "f32"], start: "mixed", list: true,
                     words: name => name === "f32" ? "all in f32" : "mixed precision" },
        flash: { label: "attention", values: [false, true], start: false, list: true,
                 words: flash => flash ? "FlashAttention" : "keeps its scores" },
        recompute: { label: "backward pass", values: [false, true], start: false, list: true,
                     words: again => again ? "computes each block again" : "computes nothing again" },
        heads: { label: "heads <i>a</i>", values: [2, 4, 6, 8, 12, 16, 20, 25, 32, 40, 48, 64, 96, 128], start: 32,
                 stuck: ({ flash }) => flash && "FlashAttention keeps no scores, so heads do not count." },
        stage: { label: "ranks share", values: [0, 1, 2, 3], start: 0, list: true, words: stage => shared[stage] },
        ranks: { label: "ranks <i>n</i>", values: [1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024], start: 8, words: commas,
                 stuck: ({ stage }) => stage === 0 && "Each rank holds everything." },
        device: { label: "device", values: [16, 24, 40, 64, 80, 96, 141, 192].map(each => each * 1e9), start: 80e9, words: gigabytes },
    };
    function count(value) {
        const [unit, name] = value < 1e9 ? [1e6, "million"] : value < 1e12 ? [1e9, "billion"] : [1e12, "trillion"];
        return `${shardlab.three(value / unit)} ${name}`;
    }

    function draw(values, width) {
        const { parameters, held } = shardlab.memory(values);
        const { device } = values;
        const total = held.reduce((sum, size) => sum + size);
        const scale = (width - 2) / Math.max(total, 1.02 * device);
        const [row, top] = [40, 26];
        const bottom = top + row * kinds.length;
        // What does not fit is behind a line, which crosses no letters.
        const line = 1 + scale * device;
        const words = `device: ${gigabytes(device)}`;
        const half = 3.7 * words.length;
        let body = text(Math.max(half, Math.min(line, width - half)), 13, "middle", words);
        let before = 0;
        kinds.forEach((kind, i) => {
            const y = top + row * i;
            body += text(0, y + 14, "start", kind) + text(width, y + 14, "end", bytes(held[i]));
            body += `<path d="M1 ${y + 28} H${width - 1}" stroke="currentColor" stroke-opacity="0.2"/>`;
            body += area(1 + scale * before, y + 20, Math.max(1, scale * held[i]), 16, curves[i]);
            body += `<path d="M${line} ${y + 18} v20" stroke="currentColor" stroke-width="2"/>`;
            before += held[i];
        });
        const state = held[0] + held[1] + held[2];
        const most = held.indexOf(Math.max(...held));
        const rest = device - total;
        const fits = rest >= 0 ? `That fits, and ${bytes(rest)} are left.` : `That is ${bytes(-rest)} too much.`;
        const said = `${count(parameters)} parameters. A rank holds ${bytes(total)}. ${fits} `
            + `The largest part: ${kinds[most]}, ${Math.round(100 * held[most] / total)}%.`;
        const heads = ["state", "activations", "while it computes", "in all"];
        const rows = [[state, held[3] + held[4], held[5], total].map(size => bytes(size))];
        return { said, picture: svg(width, bottom + 4, `Bytes of a rank. ${said}`, body) + table(heads, rows) };
    }

    shardlab.live("memory", controls, draw);
}
