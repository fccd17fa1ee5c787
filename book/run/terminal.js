// What a terminal of 80 columns shows of a lab's output: colours, curves, and a line that is written again.
{
    const escaped = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
    // `1;38;5;137` is bold and one of 256 colours (labs/tools/book/colours.rs has the same for printed outputs).
    const classes = codes => `ansi-${codes.replaceAll("38;5;", "").replaceAll(";", " ansi-")}`;
    // Unicode numbers the dots of a cell's left column 1, 2, 3, 7 and those of the right one 4, 5, 6, 8.
    const places = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [0, 3], [1, 3]];
    function curve(dots) {
        let path = "";
        [...dots].forEach((pattern, cell) => places.forEach(([x, y], bit) => {
            if (pattern.codePointAt(0) - 0x2800 >> bit & 1) path += `M${4 * cell + 2 * x + 1} ${2 * y + 1}h0`;
        }));
        return `<svg class="dots" aria-hidden="true" style="width:${dots.length}ch" viewBox="0 0 ${4 * dots.length} 8"
            preserveAspectRatio="none"><path d="${path}"/></svg>`;
    }

    // A line with codes as HTML.
    function coloured(line) {
        const [first, ...parts] = escaped(line).replace(/[\u2800-\u28ff]+/g, curve).split("\x1b[");
        let [out, open] = [first, 0];
        for (const part of parts) {
            const end = part.search(/[a-zA-Z]/);
            const codes = part.slice(0, end);
            if (part[end] !== "m") out += part.slice(end + 1);
            else if (codes === "0" || codes === "") {
                out += "</span>".repeat(open) + part.slice(end + 1);
                open = 0;
            } else {
                out += `<span class="${classes(codes)}">` + part.slice(end + 1);
                open++;
            }
        }
        return out + "</span>".repeat(open);
    }

    shardlab.Terminal = class {
        // Writes into a `code` element.
        constructor(place) {
            this.place = place;
            this.clear();
        }

        clear() {
            this.place.replaceChildren();
            this.waiting = "";
            this.line = "";
            this.last = null;
        }

        write(text) {
            this.waiting += text;
            this.frame ??= requestAnimationFrame(() => this.flush());
        }

        // Shows what has been written since the last time.
        flush() {
            this.frame = undefined;
            // A reader who has scrolled up stays there.
            const follows = this.place.scrollHeight - this.place.scrollTop - this.place.clientHeight < 40;
            const lines = this.waiting.split("\n");
            this.waiting = "";
            lines.forEach((text, i) => {
                this.line += text;
                // Back to the line's beginning, and erase it.
                const erased = this.line.lastIndexOf("\r\x1b[K");
                if (erased >= 0) this.line = this.line.slice(erased + 4);
                if (!this.last) this.place.append(this.last = document.createElement("span"));
                this.last.innerHTML = coloured(this.line);
                if (i < lines.length - 1) {
                    this.place.append("\n");
                    [this.line, this.last] = ["", null];
                }
            });
            if (follows) this.place.scrollTop = this.place.scrollHeight;
        }
    };

    // The losses that a training prints, as a curve that grows while it runs.
    shardlab.Curve = class {
        constructor(place) {
            this.place = place;
            this.clear();
        }

        clear() {
            [this.rest, this.points] = ["", []];
            this.place.hidden = true;
        }

        write(text) {
            const lines = (this.rest + text).split("\n");
            this.rest = lines.pop();
            const found = lines.map(line => line.replace(/^[^]*\r\x1b\[K/, "").match(/^(?:step|iter)=(\d+),? loss=([\d.]+)/)).filter(Boolean);
            if (found.length === 0) return;
            this.points.push(...found.map(([, step, loss]) => [Number(step), Number(loss)]));
            if (this.points.length > 1) this.draw();
        }

        draw() {
            const [wide, high] = [600, 110];
            const losses = this.points.map(([, loss]) => loss);
            const [low, top, [first], [last]] = [Math.min(...losses), Math.max(...losses), this.points[0], this.points.at(-1)];
            const x = step => 6 + (wide - 70) * (step - first) / (last - first || 1);
            const y = loss => 8 + (high - 30) * (top - loss) / (top - low || 1);
            const path = this.points.map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
            const now = losses.at(-1);
            this.place.innerHTML = `<svg viewBox="0 0 ${wide} ${high}" role="img" aria-label="the loss up to step ${last}: ${now}">
                <polyline points="${path}"/><text x="${x(last) + 6}" y="${y(now) + 4}">${now.toPrecision(3)}</text>
                <text x="6" y="${high - 4}">loss, steps ${first} to ${last}</text></svg>`;
            this.place.hidden = false;
        }
    };
}
