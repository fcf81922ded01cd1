/* An A2A worker that does nothing but answer, so that the proxy in front of it is measured. It uses 0.3, and 1.0
 * to who calls it by the names of 1.0.
 *
 * POST /              message/send: one completed Task. message/stream: as many events as the plan says, one write each.
 *                     Every call is a new task with an id of its own.
 * GET  /plan?events=20&interval_us=0   what the next calls get: 1 event is a lone completed Task. With an interval, the second
 *                     event comes after a random part of it: streams that begin together do not stay in step.
 * GET  /count         calls and events answered since the start
 * GET  /.well-known/agent-card.json    its card in 0.3
 * GET  /card-1.0      its card in 1.0
 *
 * Prints its port and serves on loopback until it is killed or its standard input ends. */
#include "common.h"

#include <signal.h>

#define MOST_CONNECTIONS 8192
#define IN_SIZE 16384
#define OUT_SIZE 4096
#define ANSWER_TEXT 295 /* makes a completed Task of about 570 bytes, with its envelope */
#define CHUNK_TEXT 90   /* makes an artifact event of about 350 bytes, with its envelope */

/* How a dialect writes this worker's answers. */
typedef struct {
    const char *send, *stream, *completed, *begins, *chunk, *ends;
} Dialect;

#define ANSWER "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":"
#define CHUNK_PARTS "\"text\":\"@%020llu %.*s\"}]},\"append\":%s,\"lastChunk\":%s}"
static const Dialect classic = {
    "\"message/send\"",
    "\"message/stream\"",
    ANSWER "{\"kind\":\"task\",\"id\":\"%s\",\"contextId\":%s,\"status\":{\"state\":\"completed\",\"timestamp\":\"%s\"},"
           "\"artifacts\":[{\"artifactId\":\"answer\",\"parts\":[{\"kind\":\"text\",\"text\":\"%.*s\"}]}]}}",
    ANSWER "{\"kind\":\"task\",\"id\":\"%s\",\"contextId\":%s,\"status\":{\"state\":\"working\",\"timestamp\":\"%s\"}}}",
    ANSWER "{\"kind\":\"artifact-update\",\"taskId\":\"%s\",\"contextId\":%s,\"artifact\":{\"artifactId\":\"answer\","
           "\"parts\":[{\"kind\":\"text\"," CHUNK_PARTS "}",
    ANSWER "{\"kind\":\"status-update\",\"taskId\":\"%s\",\"contextId\":%s,\"status\":{\"state\":\"completed\","
           "\"timestamp\":\"%s\"},\"final\":true}}",
};
static const Dialect modern = {
    "\"SendMessage\"",
    "\"SendStreamingMessage\"",
    ANSWER "{\"task\":{\"id\":\"%s\",\"contextId\":%s,\"status\":{\"state\":\"TASK_STATE_COMPLETED\",\"timestamp\":\"%s\"},"
           "\"artifacts\":[{\"artifactId\":\"answer\",\"parts\":[{\"text\":\"%.*s\"}]}]}}}",
    ANSWER "{\"task\":{\"id\":\"%s\",\"contextId\":%s,\"status\":{\"state\":\"TASK_STATE_WORKING\",\"timestamp\":\"%s\"}}}}",
    ANSWER "{\"artifactUpdate\":{\"taskId\":\"%s\",\"contextId\":%s,\"artifact\":{\"artifactId\":\"answer\",\"parts\":[{" CHUNK_PARTS "}}",
    ANSWER "{\"statusUpdate\":{\"taskId\":\"%s\",\"contextId\":%s,\"status\":{\"state\":\"TASK_STATE_COMPLETED\","
           "\"timestamp\":\"%s\"}}}}",
};

typedef struct {
    int fd;
    bool streaming, waits_to_write;
    const Dialect *dialect;
    int events, sent;
    uint64_t interval, due;
    char call[96], task[40], context[128];
    size_t in_used, out_len, out_at;
    char in[IN_SIZE], out[OUT_SIZE];
} Conn;

static Conn *conns[MOST_CONNECTIONS];
static int poller, listener, paced, flowing; /* streams with an interval, and those without */
static int plan_events = 20;
static uint64_t plan_interval, calls, events, run_id;
static char padding[ANSWER_TEXT + 1];

static const char *timestamp(void) {
    static time_t last;
    static char text[32];
    time_t now = time(NULL);
    if (now != last) {
        struct tm parts;
        gmtime_r(&now, &parts);
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.000Z", &parts);
        last = now;
    }
    return text;
}

/* The raw JSON value of the first member of this name: a string with its quotes, or a number. */
static bool member(const char *body, size_t size, const char *name, char *value, size_t room) {
    const char *end = body + size, *at = memmem(body, size, name, strlen(name));
    if (!at) return false;
    at += strlen(name);
    while (at < end && (*at == ' ' || *at == ':')) at++;
    const char *stop = at;
    if (at < end && *at == '"') {
        stop = memchr(at + 1, '"', (size_t)(end - at - 1));
        if (!stop) return false;
        stop++;
    } else {
        while (stop < end && *stop != ',' && *stop != '}' && *stop != ' ') stop++;
    }
    if (stop == at || (size_t)(stop - at) >= room) return false;
    memcpy(value, at, (size_t)(stop - at));
    value[stop - at] = 0;
    return true;
}

static void end_conn(Conn *c) {
    if (c->streaming) *(c->interval ? &paced : &flowing) -= 1;
    conns[c->fd] = NULL;
    close(c->fd);
    free(c);
}

static int completed_task(const Conn *c, char *to, size_t room) {
    return snprintf(to, room, c->dialect->completed, c->call, c->task, c->context, timestamp(), ANSWER_TEXT, padding);
}

static int stream_event(const Conn *c, char *to, size_t room) {
    if (c->events == 1) return completed_task(c, to, room);
    if (c->sent == 0) return snprintf(to, room, c->dialect->begins, c->call, c->task, c->context, timestamp());
    if (c->sent == c->events - 1) return snprintf(to, room, c->dialect->ends, c->call, c->task, c->context, timestamp());
    /* "@" and the moment of writing: the client reads from it how long the event took. */
    return snprintf(to, room, c->dialect->chunk, c->call, c->task, c->context, (unsigned long long)now_ns(), CHUNK_TEXT, padding,
                    c->sent > 1 ? "true" : "false", c->sent == c->events - 2 ? "true" : "false");
}

static void reply(Conn *c, const char *body, int size) {
    c->out_len = (size_t)snprintf(c->out, OUT_SIZE, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%.*s",
                                  size, size, body);
    c->out_at = 0;
}

static void next_event(Conn *c) {
    char event[OUT_SIZE - 512];
    int size = stream_event(c, event, sizeof event);
    const char *head = c->sent ? "" : "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    c->due += c->sent || !c->interval ? c->interval : (uint64_t)random() % c->interval;
    bool last = ++c->sent == c->events;
    c->out_len = (size_t)snprintf(c->out, OUT_SIZE, "%s%x\r\ndata: %s\n\n\r\n%s", head, size + 8, event, last ? "0\r\n\r\n" : "");
    c->out_at = 0;
    events++;
    if (last) {
        c->streaming = false;
        *(c->interval ? &paced : &flowing) -= 1;
    }
}

static void answer_call(Conn *c, const char *body, size_t size) {
    char method[64] = "", json[OUT_SIZE - 256];
    if (!member(body, size, "\"id\"", c->call, sizeof c->call)) strcpy(c->call, "null");
    member(body, size, "\"method\"", method, sizeof method);
    c->dialect = strstr(method, "message/") ? &classic : &modern;
    bool stream = !strcmp(method, c->dialect->stream);
    if (!stream && strcmp(method, c->dialect->send)) {
        int length = snprintf(json, sizeof json, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":%d,\"message\":\"no\"}}", c->call,
                              !strcmp(method, "\"tasks/get\"") || !strcmp(method, "\"GetTask\"") ? -32001 : -32601);
        reply(c, json, length);
        return;
    }
    calls++;
    snprintf(c->task, sizeof c->task, "%016llx-%012llx", (unsigned long long)run_id, (unsigned long long)calls);
    if (!member(body, size, "\"contextId\"", c->context, sizeof c->context))
        snprintf(c->context, sizeof c->context, "\"c-%s\"", c->task);
    if (stream) {
        c->streaming = true;
        c->events = plan_events;
        c->sent = 0;
        c->interval = plan_interval;
        c->due = now_ns();
        *(c->interval ? &paced : &flowing) += 1;
    } else {
        events++;
        reply(c, json, completed_task(c, json, sizeof json));
    }
}

static int card(char *json, size_t room, bool newest) {
    struct sockaddr_in own;
    socklen_t size = sizeof own;
    char where[200];
    getsockname(listener, (struct sockaddr *)&own, &size);
    snprintf(where, sizeof where,
             newest ? "\"supportedInterfaces\":[{\"url\":\"http://127.0.0.1:%d/\",\"protocolBinding\":\"JSONRPC\",\"protocolVersion\":\"1.0\"}]"
                    : "\"protocolVersion\":\"0.3.0\",\"url\":\"http://127.0.0.1:%d/\",\"preferredTransport\":\"JSONRPC\"",
             ntohs(own.sin_port));
    return snprintf(json, room,
                    "{\"name\":\"bench\",\"description\":\"Answers at once.\",\"version\":\"1\",%s,\"capabilities\":{\"streaming\":true},"
                    "\"defaultInputModes\":[\"text/plain\"],\"defaultOutputModes\":[\"text/plain\"],\"skills\":[{\"id\":\"bench\","
                    "\"name\":\"bench\",\"description\":\"Answers at once.\",\"tags\":[\"bench\"]}]}",
                    where);
}

static void answer_get(Conn *c, const char *path) {
    char json[1024];
    int size;
    unsigned long long interval;
    int count;
    if (sscanf(path, "/plan?events=%d&interval_us=%llu", &count, &interval) == 2 && count > 0) {
        plan_events = count;
        plan_interval = interval * 1000;
        size = snprintf(json, sizeof json, "{\"events\":%d,\"interval_us\":%llu}", count, interval);
    } else if (!strncmp(path, "/count", 6)) {
        size = snprintf(json, sizeof json, "{\"calls\":%llu,\"events\":%llu}", (unsigned long long)calls, (unsigned long long)events);
    } else {
        size = card(json, sizeof json, !strncmp(path, "/card-1.0", 9));
    }
    reply(c, json, size);
}

/* One request out of the buffer, if a whole one is there. */
static bool take_request(Conn *c) {
    char *head_end = memmem(c->in, c->in_used, "\r\n\r\n", 4);
    if (!head_end) return false;
    size_t head = (size_t)(head_end - c->in) + 4, body = 0;
    *head_end = 0;
    char *length = strcasestr(c->in, "\r\ncontent-length:");
    if (length) body = strtoul(length + 17, NULL, 10);
    if (c->in_used < head + body) {
        *head_end = '\r';
        return false;
    }
    if (!strncmp(c->in, "GET ", 4))
        answer_get(c, c->in + 4);
    else
        answer_call(c, c->in + head, body);
    c->in_used -= head + body;
    memmove(c->in, c->in + head + body, c->in_used);
    return true;
}

static void want(Conn *c, bool to_write) {
    if (c->waits_to_write == to_write) return;
    c->waits_to_write = to_write;
    struct epoll_event event = {.events = EPOLLIN | (to_write ? EPOLLOUT : 0), .data.fd = c->fd};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event);
}

/* Do what can be done now: write what is left, then the next event that is due, then the next request. Of a stream that writes
 * back to back one event, before the other streams have their turn: a lump of events would cost who passes it on much less
 * or not, as chance has it. */
static void advance(Conn *c) {
    for (bool wrote = false;;) {
        if (c->out_at < c->out_len) {
            ssize_t sent = send(c->fd, c->out + c->out_at, c->out_len - c->out_at, MSG_NOSIGNAL);
            if (sent < 0 && errno == EAGAIN) return want(c, true);
            if (sent < 0) return end_conn(c);
            c->out_at += (size_t)sent;
        } else if (c->streaming) {
            if (c->interval ? now_ns() < c->due : wrote) return want(c, false);
            next_event(c);
            wrote = true;
        } else if (!take_request(c)) {
            return want(c, false);
        }
    }
}

static void on_readable(Conn *c) {
    if (c->in_used == IN_SIZE) return end_conn(c);
    ssize_t got = recv(c->fd, c->in + c->in_used, IN_SIZE - c->in_used, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) return end_conn(c);
    c->in_used += (size_t)got;
    advance(c);
}

static void take_connections(void) {
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        int on = 1;
        Conn *c = fd < MOST_CONNECTIONS ? calloc(1, sizeof *c) : NULL;
        if (!c) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        c->fd = fd;
        conns[fd] = c;
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
        epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event);
    }
}

/* Once around the streams that are due. */
static void pace(void) {
    uint64_t now = now_ns();
    for (int fd = 0; fd < MOST_CONNECTIONS; fd++)
        if (conns[fd] && conns[fd]->streaming && !conns[fd]->waits_to_write && conns[fd]->due <= now) advance(conns[fd]);
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct epoll_event ready[256], event = {.events = EPOLLIN};
    signal(SIGPIPE, SIG_IGN);
    memset(padding, 'x', ANSWER_TEXT);
    if (getrandom(&run_id, sizeof run_id, 0) != sizeof run_id) return 1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 4096)) return perror("listen"), 1;
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    poller = epoll_create1(EPOLL_CLOEXEC);
    event.data.fd = listener;
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event);
    event.data.fd = STDIN_FILENO; /* the parent holds the other end: this process ends with it */
    epoll_ctl(poller, EPOLL_CTL_ADD, STDIN_FILENO, &event);
    for (;;) {
        int count = epoll_wait(poller, ready, 256, flowing ? 0 : paced ? 1 : -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == STDIN_FILENO) return 0;
            if (fd == listener) {
                take_connections();
            } else if (conns[fd]) {
                if (ready[i].events & EPOLLOUT)
                    advance(conns[fd]);
                else
                    on_readable(conns[fd]);
            }
        }
        if (paced || flowing) pace();
    }
}
