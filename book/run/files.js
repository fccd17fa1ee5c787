// A lab's files, in the page's memory: what WASI (preview 1) asks of a file system. Each function gets the program's
// memory, and returns an error's number, or 0. A file lives as long as the page.

const BAD_FILE = 8, EXISTS = 20, INVALID = 28, IS_FOLDER = 31, NO_ENTRY = 44, NOT_EMPTY = 55, NO_FOLDER = 54, NOT_HERE = 52;
const FOLDER = 3, FILE = 4;

class Files {
    constructor() {
        // A folder is a map, and a file has bytes and a length.
        this.root = this.folder();
        this.open = [null, null, null, { node: this.root }];
        this.numbers = 1;
    }

    folder() {
        return { entries: new Map(), number: this.numbers++, time: Date.now() };
    }

    file() {
        return { bytes: new Uint8Array(0), length: 0, number: this.numbers++, time: Date.now() };
    }

    // Every file with its path and its bytes.
    all(node = this.root, path = "") {
        if (!node.entries) return [[path, node.bytes.slice(0, node.length)]];
        return [...node.entries].flatMap(([name, inside]) => this.all(inside, path ? `${path}/${name}` : name));
    }

    // The same files, for a lab that is to change none of these.
    copy() {
        const others = new Files();
        const copied = node => node.entries
            ? { ...others.folder(), entries: new Map([...node.entries].map(([name, inside]) => [name, copied(inside)])) }
            : { ...others.file(), bytes: node.bytes.slice(0, node.length), length: node.length };
        others.root = copied(this.root);
        others.open = [null, null, null, { node: others.root }];
        return others;
    }

    // The folder that a path ends in, the last name, and what it names, if that exists.
    find(from, path) {
        const names = path.split("/").filter(name => name !== "" && name !== ".");
        let [folder, above, last] = [from, [], null];
        for (const [i, name] of names.entries()) {
            if (!folder?.entries) return { error: NO_FOLDER };
            if (name === "..") folder = above.pop() ?? this.root;
            else if (i === names.length - 1) last = name;
            else {
                above.push(folder);
                folder = folder.entries.get(name);
                if (!folder) return { error: NO_ENTRY };
            }
        }
        if (last === null) return { folder, node: folder };
        return folder.entries ? { folder, last, node: folder.entries.get(last) } : { error: NO_FOLDER };
    }

    // Makes a file at least so long, with zeros.
    grow(file, length) {
        if (length > file.bytes.length) {
            const larger = new Uint8Array(Math.max(length, 2 * file.bytes.length, 4096));
            larger.set(file.bytes.subarray(0, file.length));
            file.bytes = larger;
        }
        if (length > file.length) file.bytes.fill(0, file.length, length);
        file.length = Math.max(file.length, length);
    }

    // Calls `part(at, size)` for each of a call's pieces of memory, until one is not whole.
    static pieces(words, parts, number, part) {
        let all = 0;
        for (let i = 0; i < number; i++) {
            const [at, size] = [0, 4].map(place => words.getUint32(parts + 8 * i + place, true));
            const done = part(at, size);
            all += done;
            if (done < size) break;
        }
        return all;
    }

    call(memory, name, given) {
        const bytes = new Uint8Array(memory.buffer);
        const words = new DataView(memory.buffer);
        const text = (at, length) => new TextDecoder().decode(bytes.slice(at, at + length));
        return this[name] ? this[name]({ bytes, words, text }, ...given) : NOT_HERE;
    }

    stat({ bytes, words }, node, out) {
        bytes.fill(0, out, out + 64);
        words.setBigUint64(out, 1n, true);
        words.setBigUint64(out + 8, BigInt(node.number), true);
        words.setUint8(out + 16, node.entries ? FOLDER : FILE);
        words.setBigUint64(out + 24, 1n, true);
        words.setBigUint64(out + 32, BigInt(node.length ?? 0), true);
        for (const place of [40, 48, 56]) words.setBigUint64(out + place, BigInt(node.time) * 1_000_000n, true);
        return 0;
    }

    fd_prestat_get({ words }, file, out) {
        if (file !== 3) return BAD_FILE;
        words.setUint32(out, 0, true);
        words.setUint32(out + 4, 1, true);
        return 0;
    }

    fd_prestat_dir_name({ bytes }, file, at) {
        bytes[at] = "/".charCodeAt(0);
        return file === 3 ? 0 : BAD_FILE;
    }

    fd_fdstat_get({ bytes, words }, file, out) {
        const open = this.open[file];
        if (!open) return BAD_FILE;
        bytes.fill(0, out, out + 24);
        words.setUint8(out, open.node.entries ? FOLDER : FILE);
        words.setUint16(out + 2, open.append ? 1 : 0, true);
        words.setBigUint64(out + 8, 0x1fffffffn, true);
        words.setBigUint64(out + 16, 0x1fffffffn, true);
        return 0;
    }

    fd_fdstat_set_flags(_, file, flags) {
        if (!this.open[file]) return BAD_FILE;
        this.open[file].append = (flags & 1) !== 0;
        return 0;
    }

    fd_filestat_get(memory, file, out) {
        return this.open[file] ? this.stat(memory, this.open[file].node, out) : BAD_FILE;
    }

    path_filestat_get(memory, from, _, at, length, out) {
        const { node, error } = this.find(this.open[from]?.node, memory.text(at, length));
        return error ?? (node ? this.stat(memory, node, out) : NO_ENTRY);
    }

    path_filestat_set_times() {
        return 0;
    }

    path_create_directory({ text }, from, at, length) {
        const { folder, last, node, error } = this.find(this.open[from]?.node, text(at, length));
        if (error || node) return error ?? EXISTS;
        folder.entries.set(last, this.folder());
        return 0;
    }

    path_unlink_file({ text }, from, at, length) {
        const { folder, last, node, error } = this.find(this.open[from]?.node, text(at, length));
        if (error || !node) return error ?? NO_ENTRY;
        if (node.entries) return IS_FOLDER;
        folder.entries.delete(last);
        return 0;
    }

    path_remove_directory({ text }, from, at, length) {
        const { folder, last, node, error } = this.find(this.open[from]?.node, text(at, length));
        if (error || !node) return error ?? NO_ENTRY;
        if (!node.entries) return NO_FOLDER;
        if (node.entries.size > 0) return NOT_EMPTY;
        folder.entries.delete(last);
        return 0;
    }

    path_rename({ text }, from, at, length, to, toAt, toLength) {
        const old = this.find(this.open[from]?.node, text(at, length));
        const now = this.find(this.open[to]?.node, text(toAt, toLength));
        if (old.error || now.error || !old.node) return old.error ?? now.error ?? NO_ENTRY;
        if (now.node?.entries?.size > 0) return NOT_EMPTY;
        old.folder.entries.delete(old.last);
        now.folder.entries.set(now.last, old.node);
        return 0;
    }

    path_open({ text, words }, from, _, at, length, flags, rights, inheriting, more, out) {
        const [create, folderOnly, exclusive, truncate] = [1, 2, 4, 8].map(flag => (flags & flag) !== 0);
        const found = this.find(this.open[from]?.node, text(at, length));
        if (found.error) return found.error;
        let { node } = found;
        if (node && exclusive) return EXISTS;
        if (node && folderOnly && !node.entries) return NO_FOLDER;
        if (!node && !create) return NO_ENTRY;
        if (!node) found.folder.entries.set(found.last, node = this.file());
        if (truncate && !node.entries) node.length = 0;
        const number = this.open.push({ node, at: 0, append: (more & 1) !== 0 }) - 1;
        words.setUint32(out, number, true);
        return 0;
    }

    fd_close(_, file) {
        if (!this.open[file]) return BAD_FILE;
        this.open[file] = null;
        return 0;
    }

    read({ bytes, words }, node, from, parts, number, out) {
        const done = Files.pieces(words, parts, number, (at, size) => {
            const part = node.bytes.subarray(from, Math.min(node.length, from + size));
            bytes.set(part, at);
            from += part.length;
            return part.length;
        });
        words.setUint32(out, done, true);
        return done;
    }

    write({ bytes, words }, node, from, parts, number, out) {
        const done = Files.pieces(words, parts, number, (at, size) => {
            this.grow(node, from + size);
            node.bytes.set(bytes.subarray(at, at + size), from);
            from += size;
            return size;
        });
        node.time = Date.now();
        words.setUint32(out, done, true);
        return done;
    }

    fd_read(memory, file, parts, number, out) {
        const open = this.open[file];
        if (!open) return BAD_FILE;
        if (open.node.entries) return IS_FOLDER;
        open.at += this.read(memory, open.node, open.at, parts, number, out);
        return 0;
    }

    fd_write(memory, file, parts, number, out) {
        const open = this.open[file];
        if (!open || open.node.entries) return BAD_FILE;
        if (open.append) open.at = open.node.length;
        open.at += this.write(memory, open.node, open.at, parts, number, out);
        return 0;
    }

    fd_pread(memory, file, parts, number, from, out) {
        const open = this.open[file];
        if (!open || open.node.entries) return BAD_FILE;
        this.read(memory, open.node, Number(from), parts, number, out);
        return 0;
    }

    fd_pwrite(memory, file, parts, number, from, out) {
        const open = this.open[file];
        if (!open || open.node.entries) return BAD_FILE;
        this.write(memory, open.node, Number(from), parts, number, out);
        return 0;
    }

    fd_seek({ words }, file, by, from, out) {
        const open = this.open[file];
        if (!open || open.node.entries) return BAD_FILE;
        const to = Number(by) + [0, open.at, open.node.length][from];
        if (to < 0) return INVALID;
        open.at = to;
        words.setBigUint64(out, BigInt(to), true);
        return 0;
    }

    fd_tell({ words }, file, out) {
        if (!this.open[file]) return BAD_FILE;
        words.setBigUint64(out, BigInt(this.open[file].at), true);
        return 0;
    }

    fd_filestat_set_size(_, file, length) {
        const open = this.open[file];
        if (!open || open.node.entries) return BAD_FILE;
        this.grow(open.node, Number(length));
        open.node.length = Number(length);
        return 0;
    }

    fd_allocate(_, file, from, length) {
        const open = this.open[file];
        if (!open || open.node.entries) return BAD_FILE;
        this.grow(open.node, Number(from) + Number(length));
        return 0;
    }

    fd_readdir({ bytes, words }, file, at, room, cookie, out) {
        const open = this.open[file];
        if (!open?.node.entries) return NO_FOLDER;
        let used = 0;
        const all = [...open.node.entries];
        for (let i = Number(cookie); i < all.length && used < room; i++) {
            const [name, node] = all[i];
            const encoded = new TextEncoder().encode(name);
            const entry = new Uint8Array(24 + encoded.length);
            const fields = new DataView(entry.buffer);
            fields.setBigUint64(0, BigInt(i + 1), true);
            fields.setBigUint64(8, BigInt(node.number), true);
            fields.setUint32(16, encoded.length, true);
            fields.setUint8(20, node.entries ? FOLDER : FILE);
            entry.set(encoded, 24);
            const part = entry.subarray(0, room - used);
            bytes.set(part, at + used);
            used += part.length;
        }
        words.setUint32(out, used, true);
        return 0;
    }

    fd_sync() {
        return 0;
    }

    fd_datasync() {
        return 0;
    }

    fd_advise() {
        return 0;
    }
}

var shardlab = Object.assign(globalThis.shardlab ?? {}, { Files });
