// A page's slides, one at a time and as large as the window. The page itself shows them below each other, with the notes.
{
    const slides = [...document.querySelectorAll("main .slide")];
    const root = document.documentElement;
    let deck = slides;
    let at = 0;

    // A second window of the same page follows, where the browser lets them talk.
    const other = slides.length && "BroadcastChannel" in window ? new BroadcastChannel("shardlab-slides") : null;

    // A slide names its decks. Half a day A is one page, and the short form of its deck has the slides of a taste.
    function decks(slide) {
        if (slide.dataset.decks) return slide.dataset.decks.split("|");
        return slide.classList.contains("taste") ? ["half a day", "90 minutes"] : ["half a day"];
    }

    function show(number) {
        at = Math.min(Math.max(number, 0), deck.length - 1);
        slides.forEach(slide => slide.classList.toggle("now", slide === deck[at]));
        other?.postMessage(slides.indexOf(deck[at]));
    }

    // The slides of one deck: the others are neither shown nor printed.
    function choose(name) {
        deck = slides.filter(slide => decks(slide).includes(name));
        slides.forEach(slide => {
            slide.classList.toggle("out", !deck.includes(slide));
            delete slide.dataset.number;
        });
        deck.forEach((slide, i) => { slide.dataset.number = `${slide.classList.contains("taste") ? "· " : ""}${i + 1} / ${deck.length}`; });
    }

    function present() {
        root.classList.add("presenting");
        // A browser may refuse, and then the window is as large as it is.
        root.requestFullscreen?.().catch(() => {});
        show(0);
    }

    function leave() {
        root.classList.remove("presenting");
        if (document.fullscreenElement) document.exitFullscreen();
        deck[at].scrollIntoView();
    }

    // An output is as large as its lines and columns let it be.
    function measure(slide) {
        const lines = [...slide.querySelectorAll("pre")].flatMap(pre => pre.textContent.trimEnd().split("\n"));
        if (!lines.length) return;
        slide.style.setProperty("--lines", lines.length);
        slide.style.setProperty("--columns", Math.max(...lines.map(line => [...line].length)));
    }

    const keys = {
        ArrowRight: () => show(at + 1), ArrowDown: () => show(at + 1), PageDown: () => show(at + 1), " ": () => show(at + 1),
        ArrowLeft: () => show(at - 1), ArrowUp: () => show(at - 1), PageUp: () => show(at - 1),
        Home: () => show(0), End: () => show(deck.length - 1), Escape: leave,
    };

    if (slides.length) {
        slides.forEach(measure);
        // Paths before labs, and each in the order of its first slide.
        const all = [...new Set(slides.flatMap(decks))];
        const isLab = name => /^lab\d/.test(name);
        const choice = document.createElement("select");
        choice.setAttribute("aria-label", "slides");
        for (const name of [...all.filter(name => !isLab(name)), ...all.filter(isLab)]) choice.add(new Option(name));
        choice.addEventListener("change", () => choose(choice.value));
        choose(choice.value);
        const button = document.createElement("button");
        button.textContent = "Present";
        button.addEventListener("click", present);
        const bar = document.createElement("p");
        bar.className = "decks";
        bar.append(choice, " ", button);
        slides[0].before(bar);
        // mdBook's own keys turn pages: these come first.
        window.addEventListener("keydown", event => {
            if (!root.classList.contains("presenting") || !keys[event.key]) return;
            event.preventDefault();
            event.stopImmediatePropagation();
            keys[event.key]();
        }, true);
        // Esc ends the full screen before any key is told of it.
        document.addEventListener("fullscreenchange", () => {
            if (!document.fullscreenElement && root.classList.contains("presenting")) leave();
        });
        window.addEventListener("click", event => {
            if (root.classList.contains("presenting") && !event.target.closest("a, button, select")) show(at + 1);
        });
        other?.addEventListener("message", event => {
            if (root.classList.contains("presenting")) return;
            slides.forEach((slide, i) => slide.classList.toggle("now", i === event.data));
            slides[event.data]?.scrollIntoView({ block: "start" });
        });
    }
}
