/* Calls an A2A 0.3 endpoint over keep-alive connections and checks what comes back.
 *
 *   load PORT PATH send|stream|hold CONNECTIONS MILLISECONDS EVENTS SPREAD_MS [TOKEN]
 *
 * Every call has a messageId of its own. A call is good if its answer is a result with exactly EVENTS events, the last of
 * which says "completed", of a task whose id no other call got.
 *
 * The first calls begin within SPREAD_MS, one connection after the other; each connection begins its next when one has ended.
 *
 * It warms up first, over the same connections: until twice as many calls as connections have ended (a slow server takes
 * a while to reach its pace), but at least WARM_LEAST and at most WARM_MOST. Then it prints "warm", measures
 * for MILLISECONDS and prints "over"; no call is begun after that, those that run are waited for. After each of these words it
 * waits for a line, so that its parent can read clocks at these moments. Last it prints one line of JSON. Counts include all
 * calls; rates and times include those that ended during the measurement.
 *
 * "hold" begins one stream on each connection, reports once all have begun, and keeps them open until its input ends. */
#include "common.h"

#define LINE_SIZE 65536
#define PATIENCE_NS 30000000000ull /* how long a call may take after the last was begun */
#define WARM_LEAST 500000000ull
#define WARM_MOST 10000000000ull
#define SAMPLES 8

typedef enum { HEAD, LENGTH, CHUNK_SIZE, CHUNK, CHUNK_END, LAST } Part;

typedef struct {
    int fd;
    bool busy, streamed, faulty, completed;
    Part part;
    uint64_t began, left;
    long events;
    char id[80];
    size_t head_used, line_used;
    char head[8192], line[LINE_SIZE];
} Conn;

typedef struct {
    uint32_t *at;
    size_t count, room;
} Numbers;

static const char *path, *token = "none";
static bool stream;
static Conn *conns;
static int poller, port, count;
static long expected;
static uint64_t calls, events, bad, broken, begun, run_id, window_calls, window_events;
static bool measuring, stopped;
static Numbers call_times, event_times;
static uint64_t *ids;
static size_t id_count, id_room;
static char samples[SAMPLES][80], complaint[200];

static void note(Numbers *numbers, uint64_t ns) {
    if (!measuring) return;
    if (numbers->count == numbers->room) {
        numbers->room = numbers->room ? numbers->room * 2 : 65536;
        numbers->at = realloc(numbers->at, numbers->room * sizeof *numbers->at);
        if (!numbers->at) exit(3);
    }
    numbers->at[numbers->count++] = ns / 1000 > UINT32_MAX ? UINT32_MAX : (uint32_t)(ns / 1000);
}

static void note_id(const char *id) {
    uint64_t hash = 1469598103934665603ull;
    snprintf(samples[id_count % SAMPLES], sizeof samples[0], "%s", id);
    for (; *id; id++) hash = (hash ^ (uint8_t)*id) * 1099511628211ull;
    if (id_count == id_room) {
        id_room = id_room ? id_room * 2 : 65536;
        ids = realloc(ids, id_room * sizeof *ids);
        if (!ids) exit(3);
    }
    ids[id_count++] = hash;
}

static void complain(Conn *c, const char *why) {
    c->faulty = true;
    if (!complaint[0]) {
        snprintf(complaint, sizeof complaint, "%s: %.120s", why, c->line);
        for (char *at = complaint; *at; at++)
            if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ' || (unsigned char)*at > '~') *at = '\'';
    }
}

static void open_conn(Conn *c) {
    c->fd = connect_to(port);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event);
}

static void begin_call(Conn *c) {
    static const char text[] = "Please look through the attached change, name what could go wrong in production, and say which "
                               "tests are missing. Keep the answer short, and begin with the most important finding.";
    char body[1024], request[2048];
    begun++;
    int size = snprintf(body, sizeof body,
                        "{\"jsonrpc\":\"2.0\",\"id\":%llu,\"method\":\"message/%s\",\"params\":{\"message\":{\"kind\":\"message\",\"role\":"
                        "\"user\",\"messageId\":\"%016llx-%llu\",\"parts\":[{\"kind\":\"text\",\"text\":\"%s\"}]},\"configuration\":{"
                        "\"acceptedOutputModes\":[\"text/plain\"],\"blocking\":true}}}",
                        (unsigned long long)begun, stream ? "stream" : "send", (unsigned long long)run_id, (unsigned long long)begun, text);
    int length = snprintf(request, sizeof request,
                          "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\nAccept: %s\r\n"
                          "Content-Length: %d\r\n\r\n%s",
                          path, port, token, stream ? "text/event-stream" : "application/json", size, body);
    c->busy = true;
    c->faulty = c->completed = c->streamed = false;
    c->part = HEAD;
    c->events = 0;
    c->id[0] = 0;
    c->head_used = c->line_used = 0;
    c->began = now_ns();
    if (send(c->fd, request, (size_t)length, MSG_NOSIGNAL) != length) complain(c, "request not taken");
}

/* One JSON-RPC answer: a whole body, or the data of one server-sent event. */
static void read_answer(Conn *c, const char *json, size_t size) {
    c->events++;
    window_events += measuring;
    if (!memmem(json, size, "\"result\"", 8) || memmem(json, size, "\"error\":", 8)) complain(c, "no result");
    c->completed = memmem(json, size, "\"completed\"", 11) != NULL;
    if (!c->id[0]) { /* our own ids are numbers: the first "id" that is a string is the task's */
        const char *id = memmem(json, size, "\"id\":\"", 6);
        const char *stop = id ? memchr(id + 6, '"', size - (size_t)(id + 6 - json)) : NULL;
        if (stop && stop - id - 6 < (long)sizeof c->id)
            snprintf(c->id, sizeof c->id, "%.*s", (int)(stop - id - 6), id + 6);
        else
            complain(c, "no task");
    }
    const char *mark = memmem(json, size, "\"@", 2);
    if (mark && size - (size_t)(mark - json) > 22) note(&event_times, now_ns() - strtoull(mark + 2, NULL, 10));
}

static void end_line(Conn *c) {
    if (c->line_used && c->line[c->line_used - 1] == '\r') c->line_used--;
    c->line[c->line_used] = 0;
    if (!c->streamed && c->line_used)
        read_answer(c, c->line, c->line_used);
    else if (!strncmp(c->line, "data:", 5))
        read_answer(c, c->line + 5, c->line_used - 5);
    c->line_used = 0;
}

static void take_body(Conn *c, const char *data, size_t size) {
    while (size) {
        const char *stop = memchr(data, '\n', size);
        size_t piece = stop ? (size_t)(stop - data) : size;
        if (c->line_used + piece >= LINE_SIZE) {
            complain(c, "endless line");
            piece = 0;
        }
        memcpy(c->line + c->line_used, data, piece);
        c->line_used += piece;
        if (!stop) return;
        end_line(c);
        size -= (size_t)(stop - data) + 1;
        data = stop + 1;
    }
}

static void end_call(Conn *c) {
    uint64_t now = now_ns();
    if (c->line_used) end_line(c);
    if (c->events != expected) complain(c, "wrong number of events");
    if (!c->completed) complain(c, "not completed");
    calls++;
    events += (uint64_t)c->events;
    bad += c->faulty;
    window_calls += measuring;
    note(&call_times, now - c->began);
    note_id(c->id);
    c->busy = false;
    if (!stopped) begin_call(c);
}

static bool read_head(Conn *c) {
    c->head[c->head_used] = 0;
    char *end = strstr(c->head, "\r\n\r\n"), *length = strcasestr(c->head, "\r\ncontent-length:");
    if (!end) return false;
    if (strncmp(c->head, "HTTP/1.1 200", 12)) complain(c, "not 200");
    c->streamed = strcasestr(c->head, "\r\ncontent-type: text/event-stream") != NULL;
    if (c->streamed != stream) complain(c, "wrong content type");
    c->part = length ? LENGTH : CHUNK_SIZE;
    c->left = length ? strtoull(length + 17, NULL, 10) : 0;
    c->head_used = 0;
    return true;
}

/* Up to the end of a line of framing; false if it has not come yet. */
static bool framing_line(Conn *c, const char **data, const char *end) {
    while (*data < end && c->head_used < sizeof c->head - 1) {
        c->head[c->head_used++] = *(*data)++;
        if (c->head[c->head_used - 1] == '\n') {
            c->head[c->head_used] = 0;
            return true;
        }
    }
    return false;
}

static void take_bytes(Conn *c, const char *data, const char *end) {
    while (data < end && c->busy) {
        if (c->part == HEAD) {
            if (c->head_used == sizeof c->head - 1) return complain(c, "endless head");
            c->head[c->head_used++] = *data++;
            if (c->head[c->head_used - 1] == '\n' && read_head(c) && c->part == LENGTH && !c->left) end_call(c);
        } else if (c->part == LENGTH || c->part == CHUNK) {
            size_t piece = (uint64_t)(end - data) < c->left ? (size_t)(end - data) : (size_t)c->left;
            take_body(c, data, piece);
            data += piece;
            c->left -= piece;
            if (!c->left && c->part == LENGTH) end_call(c);
            if (!c->left && c->part == CHUNK) c->part = CHUNK_END;
        } else if (framing_line(c, &data, end)) {
            c->head_used = 0;
            if (c->part == LAST) {
                if (c->head[0] == '\r' || c->head[0] == '\n') end_call(c);
            } else if (c->part == CHUNK_END) {
                c->part = CHUNK_SIZE;
            } else {
                c->left = strtoull(c->head, NULL, 16);
                c->part = c->left ? CHUNK : LAST;
            }
        }
    }
}

static void on_readable(Conn *c) {
    static char data[262144];
    ssize_t got = recv(c->fd, data, sizeof data, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got > 0) return take_bytes(c, data, data + got);
    close(c->fd);
    bool cut = c->busy;
    broken += cut;
    c->busy = false;
    open_conn(c);
    if (cut && !stopped) begin_call(c);
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int by_hash(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void print_times(const char *name, Numbers *times) {
    if (!times->count) return;
    qsort(times->at, times->count, sizeof *times->at, by_size);
    printf(",\"%s_p50_us\":%u,\"%s_p99_us\":%u,\"%s_max_us\":%u", name, times->at[times->count / 2], name,
           times->at[times->count * 99 / 100], name, times->at[times->count - 1]);
}

static void say_and_wait(const char *word) {
    say(word);
    if (getchar() == EOF) exit(5);
}

/* Until all calls have ended, or hang. Returns how many do. */
static int measure(uint64_t *duration, uint64_t spread) {
    uint64_t started = now_ns(), mark = 0;
    int first = 0;
    for (;;) {
        while (first < count && now_ns() - started >= spread * (uint64_t)first / (uint64_t)count) begin_call(&conns[first++]);
        struct epoll_event ready[256];
        int seen = epoll_wait(poller, ready, 256, 2), hung = 0;
        for (int i = 0; i < seen; i++) on_readable(ready[i].data.ptr);
        uint64_t now = now_ns();
        if (stopped) {
            for (int i = 0; i < count; i++) hung += conns[i].busy;
            if (!hung || now > mark + PATIENCE_NS) return hung;
        } else if (measuring && now >= mark + *duration) {
            measuring = false;
            stopped = true;
            *duration = now - mark;
            say_and_wait("over");
            mark = now_ns();
        } else if (!mark && now > started + WARM_LEAST && (calls >= 2 * (uint64_t)count || now > started + WARM_MOST)) {
            say_and_wait("warm");
            measuring = true;
            mark = now_ns();
        }
    }
}

/* A stream on each connection; once every one has had its first event, until the input ends. */
static int hold(void) {
    uint64_t started = now_ns();
    int open = 0;
    for (int i = 0; i < count; i++) begin_call(&conns[i]);
    while (open < count && now_ns() < started + PATIENCE_NS) {
        struct epoll_event ready[256];
        int seen = epoll_wait(poller, ready, 256, 10);
        for (int i = 0; i < seen; i++) on_readable(ready[i].data.ptr);
        for (open = 0; open < count && conns[open].events && !conns[open].faulty;) open++;
    }
    printf("{\"open\":%d,\"broken\":%llu,\"complaint\":\"%s\"}\n", open, (unsigned long long)broken, complaint);
    fflush(stdout);
    return getchar() == EOF ? 0 : 1;
}

static void report(int hung, uint64_t duration) {
    uint64_t repeated = 0;
    qsort(ids, id_count, sizeof *ids, by_hash);
    for (size_t i = 1; i < id_count; i++) repeated += ids[i] == ids[i - 1];
    printf("{\"begun\":%llu,\"calls\":%llu,\"events\":%llu,\"bad\":%llu,\"broken\":%llu,\"hung\":%d,\"repeated_ids\":%llu",
           (unsigned long long)begun, (unsigned long long)calls, (unsigned long long)events, (unsigned long long)bad,
           (unsigned long long)broken, hung, (unsigned long long)repeated);
    printf(",\"window_calls\":%llu,\"window_events\":%llu,\"seconds\":%.6f", (unsigned long long)window_calls,
           (unsigned long long)window_events, (double)duration / 1e9);
    print_times("call", &call_times);
    print_times("event", &event_times);
    printf(",\"complaint\":\"%s\",\"sample\":[", complaint);
    for (size_t i = 0; i < SAMPLES && i < id_count; i++) printf("%s\"%s\"", i ? "," : "", samples[i]);
    printf("]}\n");
}

int main(int argc, char **argv) {
    if (argc < 8) return fprintf(stderr, "load PORT PATH send|stream|hold CONNECTIONS MILLISECONDS EVENTS SPREAD_MS [TOKEN]\n"), 2;
    port = atoi(argv[1]);
    path = argv[2];
    stream = strcmp(argv[3], "send");
    count = atoi(argv[4]);
    uint64_t duration = strtoull(argv[5], NULL, 10) * 1000000;
    expected = atol(argv[6]);
    uint64_t spread = strtoull(argv[7], NULL, 10) * 1000000;
    if (argc > 8 && *argv[8]) token = argv[8];
    if (getrandom(&run_id, sizeof run_id, 0) != sizeof run_id) return 3;
    poller = epoll_create1(EPOLL_CLOEXEC);
    conns = calloc((size_t)count, sizeof *conns);
    for (int i = 0; i < count; i++) open_conn(&conns[i]);
    if (!strcmp(argv[3], "hold")) return hold();
    int hung = measure(&duration, spread);
    report(hung, duration);
    return 0;
}
