// The memory of one rank in each of ZeRO's stages: parameters, gradients and optimizer state.
{
    const { area, bytes, curves, frame, svg, table, text } = shardlab;
    const kinds = ["parameters", "gradients", "optimizer"];
    const each = { f32: [4, 4, 8], mixed: [2, 2, 12] };
    const sharded = ["shards nothing", "shards optimizer", "shards optimizer, gradients", "shards everything"];

    // Bytes of the three kinds. Stage 1 shards the optimizer state, stage 2 the gradients as well, stage 3 everything.
    shardlab.zeroMemory = (stage, { parameters, ranks, precision }) => {
        const all = each[precision].map(size => size * parameters);
        return all.map((size, kind) => stage >= 3 - kind ? Math.ceil(size / ranks) : size);
    };
    const total = (stage, values) => shardlab.zeroMemory(stage, values).reduce((sum, held) => sum + held);

    const models = [0.1, 0.35, 1, 1.5, 3, 7, 7.5, 13, 30, 70, 120, 175, 405, 1000].map(each => each * 1e9);
    const devices = [16, 24, 40, 64, 80, 96, 141, 192].map(each => each * 1e9);
    const ranks = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096];
    function count(value) {
        const [unit, name] = value < 1e9 ? [1e6, "million"] : value < 1e12 ? [1e9, "billion"] : [1e12, "trillion"];
        return `${value / unit} ${name}`;
    }
    const gigabytes = value => `${value / 1e9} GB`;
    const controls = {
        parameters: { label: "parameters", values: models, start: 7.5e9, words: count },
        ranks: { label: "ranks", values: ranks, start: 64, words: n => n.toLocaleString("en") },
        device: { label: "device", values: devices, start: 80e9, words: gigabytes },
        precision: { label: "numbers", values: ["f32", "mixed"], start: "mixed", list: true,
                     words: name => name === "f32" ? "all in f32" : "mixed precision" },
    };

    // The fewest ranks with which a stage fits; none if its whole part alone is too large.
    function fewest(stage, values) {
        let ranks = 1;
        while (ranks < 1 << 20 && total(stage, { ...values, ranks }) > values.device) ranks++;
        return ranks < 1 << 20 ? ranks : undefined;
    }

    function draw(values, width) {
        // Three fifths of the width are one device. A bar that does not fit may be too long for the rest, too.
        const x = held => 1 + (width - 2) * Math.min(1, 0.6 * held / values.device);
        const [row, top] = [50, 32];
        const bottom = top + 4 * row;
        let body = kinds.map((kind, i) => {
            const at = [0, 100, 186][i];
            return area(at, 2, 12, 12, curves[i]) + text(at + 17, 13, "start", kind);
        }).join("");
        sharded.forEach((what, stage) => {
            const y = top + row * stage;
            const all = total(stage, values);
            body += text(0, y + 12, "start", `<tspan font-weight="bold">stage ${stage}</tspan> ${what}`);
            body += text(width, y + 12, "end", `${bytes(all)} ${all <= values.device ? "✓" : "✗"}`);
            let held = 0;
            shardlab.zeroMemory(stage, values).forEach((size, kind) => {
                const [begin, end] = [x(held), x(held += size)];
                body += area(begin, y + 20, end - begin, 18, curves[kind]);
            });
            body += frame(1, y + 18, x(values.device) - 1, 22, "currentColor", 1);
            body += area(x(values.device) - 1, y + 15, 2.5, 28, "currentColor");
            if (0.6 * all <= values.device) return;
            body += `<path class="cut" d="M${width - 24} ${y + 42} l8 -26 m6 0 l-8 26"/>`;
        });
        body += text(x(values.device), bottom + 13, "middle", `one device: ${gigabytes(values.device)}`);

        const stages = [0, 1, 2, 3];
        const first = stages.find(stage => total(stage, values) <= values.device);
        const answer = first === undefined
            ? `no stage fits. Stage 3 needs ${fewest(3, values).toLocaleString("en")} ranks.`
            : `stage ${first} is the first that fits. ` +
              `It leaves ${bytes(values.device - total(first, values))} for activations.`;
        const ranks = controls.ranks.words(values.ranks);
        const said = `${count(values.parameters)} parameters on ${ranks} ranks: ${answer}`;
        const needed = stage => fewest(stage, values)?.toLocaleString("en") ?? "no fit";
        const rows = stages.map(stage => [stage, ...shardlab.zeroMemory(stage, values).map(n => bytes(n)), needed(stage)]);
        const below = table(["stage", ...kinds, "ranks needed"], rows, first);
        return { said, picture: svg(width, bottom + 18, `Bytes per rank in each stage. ${said}`, body) + below };
    }

    shardlab.live("stages", controls, draw);
}
