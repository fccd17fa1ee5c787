// A service worker that gives the book's pages the two headers that its server may not send: with them, the Workers of a
// page may share memory, and ranks are such Workers. It asks nobody else, and keeps nothing.
onactivate = event => event.waitUntil(clients.claim());
oninstall = () => skipWaiting();
onfetch = event => {
    if (new URL(event.request.url).origin !== location.origin) return;
    event.respondWith(fetch(event.request).then(answer => {
        // Of a redirect a script sees nothing: the browser follows it by itself, and asks here again.
        if (answer.status === 0) return answer;
        const headers = new Headers(answer.headers);
        headers.set("Cross-Origin-Opener-Policy", "same-origin");
        headers.set("Cross-Origin-Embedder-Policy", "require-corp");
        return new Response(answer.body, { status: answer.status, statusText: answer.statusText, headers });
    }));
};
