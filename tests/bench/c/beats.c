/* Heartbeats of many workers at an even pace, as if each sent its own.
 *
 *   beats PORT CONNECTIONS MILLISECONDS TOKEN < LINES
 *
 * Each line of its input is the name of a worker, a tab, and the body of its heartbeat; an empty line ends them. It says "ready" and
 * waits for one more line; then it sends all of them within MILLISECONDS, each over whichever connection is free, and says
 * when each has its answer: one line of JSON. */
#include "common.h"

#define MOST 20000

typedef struct {
    int fd;
    bool busy;
    size_t used;
    char in[8192];
} Line;

typedef struct {
    char *name, *body;
} Beat;

static Beat all[MOST];
static Line *lines;
static int port, count, beats, sent, answered, bad;
static const char *token;

static bool read_beats(void) {
    char *text = NULL;
    size_t room = 0;
    while (beats < MOST && getline(&text, &room, stdin) > 1) {
        char *tab = strchr(text, '\t'), *end = strchr(text, '\n');
        if (!tab || !end) return false;
        *tab = *end = 0;
        all[beats++] = (Beat){strdup(text), strdup(tab + 1)};
    }
    free(text);
    return beats > 0;
}

static void send_beat(Line *line) {
    char request[2048];
    const Beat *beat = &all[sent++];
    int size = snprintf(request, sizeof request,
                        "POST /registry/agents/%s/heartbeat HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\n"
                        "Authorization: Bearer %s\r\nContent-Length: %zu\r\n\r\n%s",
                        beat->name, port, token, strlen(beat->body), beat->body);
    line->busy = true;
    line->used = 0;
    if (send(line->fd, request, (size_t)size, MSG_NOSIGNAL) != size) exit(3);
}

static void take_answer(Line *line) {
    ssize_t got = recv(line->fd, line->in + line->used, sizeof line->in - 1 - line->used, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) exit(4);
    line->used += (size_t)got;
    line->in[line->used] = 0;
    char *end = strstr(line->in, "\r\n\r\n"), *length = strcasestr(line->in, "\r\ncontent-length:");
    if (!end || !length || line->used < (size_t)(end + 4 - line->in) + strtoul(length + 17, NULL, 10)) return;
    bad += strncmp(line->in, "HTTP/1.1 200", 12) != 0;
    line->busy = false;
    answered++;
}

int main(int argc, char **argv) {
    if (argc != 5) return fprintf(stderr, "beats PORT CONNECTIONS MILLISECONDS TOKEN < LINES\n"), 2;
    port = atoi(argv[1]);
    count = atoi(argv[2]);
    uint64_t lasts = strtoull(argv[3], NULL, 10) * 1000000;
    token = argv[4];
    if (!read_beats()) return fprintf(stderr, "no beats\n"), 2;
    lines = calloc((size_t)count, sizeof *lines);
    int poller = epoll_create1(EPOLL_CLOEXEC);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &lines[i]};
        lines[i].fd = connect_to(port);
        epoll_ctl(poller, EPOLL_CTL_ADD, lines[i].fd, &event);
    }
    say("ready");
    if (getchar() == EOF) return 2;
    uint64_t began = now_ns();
    while (answered < beats) {
        struct epoll_event ready[256];
        int seen = epoll_wait(poller, ready, 256, 1);
        for (int i = 0; i < seen; i++) take_answer(ready[i].data.ptr);
        uint64_t due = (now_ns() - began) * (uint64_t)beats / lasts;
        for (int i = 0; i < count && sent < beats && (uint64_t)sent < due; i++)
            if (!lines[i].busy) send_beat(&lines[i]);
    }
    printf("{\"answered\":%d,\"bad\":%d,\"seconds\":%.3f}\n", answered, bad, (double)(now_ns() - began) / 1e9);
    return 0;
}
