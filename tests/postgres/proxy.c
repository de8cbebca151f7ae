/* proxy.c - see proxy.h. */
#include "proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS_MAX = 64, CHUNK_BYTES = 64 * 1024, TEXT_BYTES = 64, LOOK_MS = 5 };

typedef struct pair {
    int client, server; /* -1: this pair is not in use */
    bool swallowing;    /* nothing is passed on */
    bool answer_due;    /* the next answer is not passed on */
} pair;

struct proxy {
    int listener;
    char directory[64], socket[96], upstream[96];
    pthread_t thread;
    pthread_mutex_t mu;
    /* guarded by mu */
    pair pairs[PAIRS_MAX];
    char cut_answer[TEXT_BYTES], cut_request[TEXT_BYTES];
    bool cut_any_answer;
    bool swallow_new;
    bool stopping;
    int cuts;
};

static void must(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "proxy: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    must(strlen(path) < sizeof address.sun_path, "the path of a socket is too long");
    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

static void pair_close(pair *c)
{
    if (c->client >= 0) {
        close(c->client);
        close(c->server);
    }
    *c = (pair){ .client = -1, .server = -1 };
}

static void accept_one(proxy *p)
{
    const int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    const struct sockaddr_un address = address_of(p->upstream);
    const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size_t i = 0;
    while (i < PAIRS_MAX && p->pairs[i].client >= 0) {
        i++;
    }
    if (client < 0 || server < 0 || i == PAIRS_MAX ||
        connect(server, (const struct sockaddr *)&address, sizeof address) != 0) {
        if (client >= 0) {
            close(client);
        }
        if (server >= 0) {
            close(server);
        }
        return;
    }
    p->pairs[i] = (pair){ .client = client, .server = server, .swallowing = p->swallow_new };
}

static bool holds(const char *bytes, size_t len, const char *text)
{
    return text[0] != '\0' && memmem(bytes, len, text, strlen(text)) != NULL;
}

static bool write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        const ssize_t n = send(fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0) {
            return false;
        }
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* What one side has sent goes to the other, or not. false: the pair is closed. */
static bool pass(proxy *p, pair *c, bool from_client, char *bytes)
{
    const ssize_t got = read(from_client ? c->client : c->server, bytes, CHUNK_BYTES);
    if (got <= 0) {
        /* Who swallows keeps quiet about the end, too. */
        return c->swallowing && !from_client ? (usleep(1000), true) : false;
    }
    const size_t len = (size_t)got;
    if (c->swallowing) {
        return true;
    }
    if (from_client) {
        if (holds(bytes, len, p->cut_request)) {
            p->cut_request[0] = '\0';
            p->cuts++;
            return false;
        }
        if (p->cut_any_answer || holds(bytes, len, p->cut_answer)) {
            p->cut_any_answer = false;
            p->cut_answer[0] = '\0';
            c->answer_due = true;
        }
        return write_all(c->server, bytes, len);
    }
    if (c->answer_due) {
        /* "ready for query, idle": sent when everything is committed. */
        if (memmem(bytes, len, "Z\0\0\0\5I", 6) != NULL) {
            p->cuts++;
            return false;
        }
        return true;
    }
    return write_all(c->client, bytes, len);
}

static void *proxy_main(void *arg)
{
    proxy *p = arg;
    static char bytes[CHUNK_BYTES];
    for (;;) {
        struct pollfd fds[1 + 2 * PAIRS_MAX];
        pthread_mutex_lock(&p->mu);
        const bool stopping = p->stopping;
        fds[0] = (struct pollfd){ .fd = p->listener, .events = POLLIN };
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            fds[1 + 2 * i] = (struct pollfd){ .fd = p->pairs[i].client, .events = POLLIN };
            fds[2 + 2 * i] = (struct pollfd){ .fd = p->pairs[i].server, .events = POLLIN };
        }
        pthread_mutex_unlock(&p->mu);
        if (stopping) {
            return NULL;
        }
        if (poll(fds, 1 + 2 * PAIRS_MAX, LOOK_MS) <= 0) {
            continue;
        }
        pthread_mutex_lock(&p->mu);
        if (fds[0].revents != 0) {
            accept_one(p);
        }
        for (size_t i = 0; i < PAIRS_MAX; i++) {
            pair *c = &p->pairs[i];
            for (int side = 0; side < 2; side++) {
                const struct pollfd *fd = &fds[1 + 2 * i + (size_t)side];
                const int now = side == 0 ? c->client : c->server;
                if (fd->fd >= 0 && fd->fd == now && fd->revents != 0 &&
                    !pass(p, c, side == 0, bytes)) {
                    pair_close(c);
                }
            }
        }
        pthread_mutex_unlock(&p->mu);
    }
}

proxy *proxy_start(void)
{
    proxy *p = calloc(1, sizeof *p);
    const char *upstream = getenv("WEIR_TEST_PG_DIR");
    must(p != NULL && upstream != NULL, "WEIR_TEST_PG_DIR is not set");
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        p->pairs[i] = (pair){ .client = -1, .server = -1 };
    }
    snprintf(p->directory, sizeof p->directory, "/tmp/weir-proxy.XXXXXX");
    must(mkdtemp(p->directory) != NULL, "no directory");
    snprintf(p->socket, sizeof p->socket, "%s/.s.PGSQL.5432", p->directory);
    must((size_t)snprintf(p->upstream, sizeof p->upstream, "%s/.s.PGSQL.5432", upstream) <
             sizeof p->upstream,
         "the server's directory is too long");
    const struct sockaddr_un address = address_of(p->socket);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(p->listener >= 0 &&
             bind(p->listener, (const struct sockaddr *)&address, sizeof address) == 0 &&
             listen(p->listener, 64) == 0,
         "no socket");
    pthread_mutex_init(&p->mu, NULL);
    must(pthread_create(&p->thread, NULL, proxy_main, p) == 0, "no thread");
    return p;
}

void proxy_stop(proxy *p)
{
    pthread_mutex_lock(&p->mu);
    p->stopping = true;
    pthread_mutex_unlock(&p->mu);
    pthread_join(p->thread, NULL);
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        pair_close(&p->pairs[i]);
    }
    close(p->listener);
    unlink(p->socket);
    rmdir(p->directory);
    pthread_mutex_destroy(&p->mu);
    free(p);
}

const char *proxy_host(const proxy *p)
{
    return p->directory;
}

void proxy_cut_answer(proxy *p, const char *text)
{
    pthread_mutex_lock(&p->mu);
    snprintf(p->cut_answer, sizeof p->cut_answer, "%s", text == NULL ? "" : text);
    p->cut_any_answer = text == NULL;
    pthread_mutex_unlock(&p->mu);
}

void proxy_cut_request(proxy *p, const char *text)
{
    pthread_mutex_lock(&p->mu);
    snprintf(p->cut_request, sizeof p->cut_request, "%s", text);
    pthread_mutex_unlock(&p->mu);
}

int proxy_cuts(proxy *p)
{
    pthread_mutex_lock(&p->mu);
    const int cuts = p->cuts;
    pthread_mutex_unlock(&p->mu);
    return cuts;
}

void proxy_blackhole(proxy *p, bool all)
{
    pthread_mutex_lock(&p->mu);
    p->swallow_new = all;
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        p->pairs[i].swallowing = p->pairs[i].client >= 0;
    }
    pthread_mutex_unlock(&p->mu);
}

void proxy_heal(proxy *p)
{
    pthread_mutex_lock(&p->mu);
    p->swallow_new = false;
    pthread_mutex_unlock(&p->mu);
}

void proxy_close_all(proxy *p)
{
    pthread_mutex_lock(&p->mu);
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        pair_close(&p->pairs[i]);
    }
    pthread_mutex_unlock(&p->mu);
}

int proxy_connections(proxy *p)
{
    int count = 0;
    pthread_mutex_lock(&p->mu);
    for (size_t i = 0; i < PAIRS_MAX; i++) {
        count += p->pairs[i].client >= 0 ? 1 : 0;
    }
    pthread_mutex_unlock(&p->mu);
    return count;
}
