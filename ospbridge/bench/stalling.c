/*
 * An OSP 1.1 server of the nerd profile that loses wake-ups, as the server of the NERD toolkit was observed to do.
 *
 * One handler thread for each client, and the main thread, which runs the steps. A handler that acknowledged a step
 * request wakes the main thread, and goes to sleep on a condition for 50 ms at most; whether the step is done it looks
 * only when it is woken, not before it sleeps. If the main thread preempts the handler at its wake-up and finishes the
 * step, the wake-up of the handler comes before its sleep, and is lost: the completion is sent 50 ms later. A datagram
 * that comes meanwhile is served first, and the 50 ms begin anew.
 *
 * It has one agent with two inputs and two outputs, and the few variables that a client needs to tell whether a step
 * ran. There are no events, and RESET_COMMUNICATION is ignored. Not for anything but measurements and tests.
 *
 *     cc -O2 -pthread -o stalling stalling.c
 *     ./stalling [PORT [MICROSECONDS]]
 *
 * PORT of 127.0.0.1, 0 for any; the first line of the output is HOST:PORT. MICROSECONDS for which a step keeps the main
 * thread busy, 100 unless given. SIGTERM ends it.
 */

#define _GNU_SOURCE

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <regex.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    INIT = 5, INIT_ACK = 6, END = 7, END_ACK = 8, REGISTER_EVENT = 20, REGISTER_EVENT_ACK = 21, GET_VALUE_IDS = 40,
    VALUE_IDS = 41, VALUE_INFO = 43, GET_VALUE = 50, VALUE = 51, SET_VALUE = 52, SET_VALUE_ACK = 53, RESET = 70,
    RESET_ACK = 71, RESET_COMPLETED = 75, STEP = 80, STEP_ACK = 81, STEP_COMPLETED = 85, OVERVIEW = 90,
    OVERVIEW_ACK = 91, OVERVIEW_NEXT = 92, AGENT_INFO = 95, AGENT_INFO_ACK = 96, AGENT_INFO_NEXT = 98, REGISTER = 100,
    REGISTER_ACK = 101, DEREGISTER = 105, DEREGISTER_ACK = 106, DATAGRAM_END = 120
};
enum { INPUTS = 2, OUTPUTS = 2, AGENT = 1, STALL_MS = 50, LARGEST = 1024 };
enum { TIME, STEP_SIZE, ITERATIONS, SEED, INPUT_0, INPUT_1, OUTPUT_0, OUTPUT_1, VALUES };

static const char *agent_name = "Robot", *agent_type = "Agent";
static const char *input_names[] = {"/Left/Speed", "/Right/Speed"};
static const char *output_names[] = {"/Left/Distance", "/Right/Distance"};
static const char *value_types[] = {"Double", "Double", "Int", "Int", "/Left/Speed", "/Right/Speed", "/Left/Distance",
                                    "/Right/Distance"};
static const char *value_names[] = {"/Simulation/SimulationTime", "/Simulation/TimeStepSize",
                                    "/Simulation/IterationsPerStep", "/Simulation/Seed", "/Sim/Robot/Left/Speed",
                                    "/Sim/Robot/Right/Speed", "/Sim/Robot/Left/Distance", "/Sim/Robot/Right/Distance"};

struct handler {
    int socket;
    unsigned char in[LARGEST + 1]; /* a 0 behind what came, so that a text in it ends */
    int length;
    unsigned char out[LARGEST];
    int at;
};

/* The world, and who drives it; below the lock of the world. */
static pthread_mutex_t world = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t requested = PTHREAD_COND_INITIALIZER;
static double values[VALUES] = {[STEP_SIZE] = 0.01, [ITERATIONS] = 1};
static struct handler *driver;
static int steps_wanted, resets_wanted, is_done;

/* Where handlers sleep. */
static pthread_mutex_t bed = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;

static long busy_us = 100;
static int main_socket;

/* --- writing and reading ----------------------------------------------------------------------------------------- */

static void begin(struct handler *h, int code)
{
    h->out[0] = (unsigned char)code;
    h->at = 1;
}

static void put(struct handler *h, const void *data, size_t size)
{
    if (h->at + size < LARGEST) {
        memcpy(h->out + h->at, data, size);
        h->at += (int)size;
    }
}

static void put_byte(struct handler *h, int value)
{
    unsigned char byte = (unsigned char)value;
    put(h, &byte, 1);
}

static void put_int(struct handler *h, int value)
{
    put(h, &value, sizeof value); /* little-endian, as the machines are that this runs on */
}

static void put_float(struct handler *h, double value)
{
    float single = (float)value;
    put(h, &single, sizeof single);
}

static void put_text(struct handler *h, const char *text)
{
    put(h, text, strlen(text) + 1);
}

static void reply(struct handler *h)
{
    put_byte(h, DATAGRAM_END);
    send(h->socket, h->out, (size_t)h->at, 0);
}

static int int_at(const struct handler *h, int offset)
{
    int value = 0;
    if (offset + (int)sizeof value <= h->length)
        memcpy(&value, h->in + offset, sizeof value);
    return value;
}

static const char *text_at(const struct handler *h, int offset)
{
    return offset < h->length ? (const char *)h->in + offset : "";
}

/* The next datagram; -1 where the client is gone. */
static int next(struct handler *h)
{
    ssize_t length = recv(h->socket, h->in, LARGEST, 0);
    if (length < 0)
        return -1;
    h->length = (int)length;
    h->in[length] = 0;
    return 0;
}

/* --- sleeping, which is what this is about ------------------------------------------------------------------------ */

static struct timespec in_ms(long ms)
{
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += ms * 1000000;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    return when;
}

static void nap(void)
{
    struct timespec until = in_ms(STALL_MS);
    pthread_mutex_lock(&bed);
    pthread_cond_timedwait(&done, &bed, &until);
    pthread_mutex_unlock(&bed);
}

static void serve(struct handler *h);

/* What the driver asked for is under way: sleep, look, and serve what comes first. -1 where the client is gone. */
static int await(struct handler *h)
{
    for (;;) {
        nap();
        ssize_t length = recv(h->socket, h->in, LARGEST, MSG_DONTWAIT);
        if (length >= 0) {
            h->length = (int)length;
            h->in[length] = 0;
            if (length > 0 && h->in[0] != STEP && h->in[0] != RESET && h->in[0] != END)
                serve(h);
            continue;
        }
        if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
            return -1;
        pthread_mutex_lock(&world);
        int finished = is_done || driver != h;
        pthread_mutex_unlock(&world);
        if (finished)
            return 0;
    }
}

/* --- commands ----------------------------------------------------------------------------------------------------- */

static void overview(struct handler *h)
{
    pthread_mutex_lock(&world);
    int taken = driver != NULL;
    pthread_mutex_unlock(&world);
    begin(h, OVERVIEW_ACK);
    put_int(h, 1);
    reply(h);
    begin(h, OVERVIEW_NEXT);
    put_int(h, 0);
    put_int(h, AGENT);
    put_text(h, agent_type);
    put_byte(h, !taken);
    put_text(h, agent_name);
    reply(h);
    next(h); /* its acknowledgement, or whatever comes in its place */
}

static void info_values(struct handler *h, int count, const char *const names[])
{
    for (int i = 0; i < count; i++) {
        begin(h, AGENT_INFO_NEXT);
        put_int(h, i + (names == output_names ? INPUTS : 0));
        put_float(h, -1);
        put_float(h, 1);
        put_text(h, names[i]);
        reply(h);
    }
}

static void agent_info(struct handler *h)
{
    int known = int_at(h, 1) == AGENT;
    begin(h, AGENT_INFO_ACK);
    put_int(h, known ? AGENT : 0);
    put_int(h, known ? INPUTS : 0);
    put_int(h, known ? OUTPUTS : 0);
    put_int(h, 0);
    put_text(h, known ? agent_name : "");
    reply(h);
    if (known) {
        info_values(h, INPUTS, input_names);
        info_values(h, OUTPUTS, output_names);
        next(h);
    }
}

static void release(struct handler *h)
{
    pthread_mutex_lock(&world);
    if (driver == h)
        driver = NULL;
    pthread_mutex_unlock(&world);
}

static void take_or_give_back(struct handler *h, int taking)
{
    int id = int_at(h, 1), status = taking ? 0 : 2;
    pthread_mutex_lock(&world);
    if (id == AGENT && taking && (driver == NULL || driver == h)) {
        driver = h;
        status = 1;
    } else if (id == AGENT && !taking && driver == h) {
        driver = NULL;
        status = 1;
    }
    pthread_mutex_unlock(&world);
    begin(h, taking ? REGISTER_ACK : DEREGISTER_ACK);
    put_int(h, id);
    put_byte(h, status);
    reply(h);
}

static void list_values(struct handler *h)
{
    char whole[LARGEST + 8];
    regex_t expression;
    int found[VALUES], count = 0;
    snprintf(whole, sizeof whole, "^(%s)$", text_at(h, 1));
    if (regcomp(&expression, whole, REG_EXTENDED | REG_NOSUB) == 0) {
        for (int i = 0; i < VALUES; i++)
            if (regexec(&expression, value_names[i], 0, NULL, 0) == 0)
                found[count++] = i;
        regfree(&expression);
    }
    begin(h, VALUE_IDS);
    put_int(h, count);
    reply(h);
    for (int i = 0; i < count; i++) {
        begin(h, VALUE_INFO);
        put_int(h, i);
        put_int(h, found[i] + 1);
        put_text(h, value_types[found[i]]);
        put_text(h, value_names[found[i]]);
        reply(h);
    }
}

static void get_value(struct handler *h)
{
    char text[40] = "";
    int id = int_at(h, 1), known = id >= 1 && id <= VALUES;
    if (known) {
        pthread_mutex_lock(&world);
        snprintf(text, sizeof text, "%.15g", values[id - 1]);
        pthread_mutex_unlock(&world);
    }
    begin(h, VALUE);
    put_int(h, known ? id : -1);
    put_text(h, text);
    reply(h);
}

static void set_value(struct handler *h)
{
    int id = int_at(h, 1), status = 2;
    const char *text = text_at(h, 5);
    char *rest;
    if (id >= 1 && id <= VALUES) {
        double value = strtod(text, &rest);
        status = *text != 0 && *rest == 0;
        if (status) {
            pthread_mutex_lock(&world);
            values[id - 1] = value;
            pthread_mutex_unlock(&world);
        }
    }
    begin(h, SET_VALUE_ACK);
    put_int(h, id);
    put_byte(h, status);
    reply(h);
}

static void acknowledge(struct handler *h, int code, int id, int with_id)
{
    begin(h, code);
    if (with_id)
        put_int(h, id);
    reply(h);
}

static void step(struct handler *h)
{
    int id = int_at(h, 1), count = int_at(h, 5);
    pthread_mutex_lock(&world);
    int mine = id == AGENT && driver == h;
    if (mine) {
        for (int i = 0; i < INPUTS && i < count && 9 + 4 * (i + 1) <= h->length; i++) {
            float input;
            memcpy(&input, h->in + 9 + 4 * i, sizeof input);
            values[INPUT_0 + i] = input < -1 ? -1 : input > 1 ? 1 : input;
        }
        steps_wanted++;
        is_done = 0;
    }
    pthread_mutex_unlock(&world);
    if (!mine)
        return; /* silence, as for whatever is not this client's */
    acknowledge(h, STEP_ACK, id, 1);
    pthread_cond_signal(&requested);
    if (await(h) < 0)
        return;
    begin(h, STEP_COMPLETED);
    put_int(h, AGENT);
    put_int(h, OUTPUTS);
    put_int(h, 0);
    put_int(h, 0);
    put_int(h, 0);
    pthread_mutex_lock(&world);
    put_float(h, values[OUTPUT_0]);
    put_float(h, values[OUTPUT_1]);
    pthread_mutex_unlock(&world);
    reply(h);
    next(h);
}

static void reset(struct handler *h)
{
    acknowledge(h, RESET_ACK, 0, 0);
    pthread_mutex_lock(&world);
    int mine = driver == h;
    if (mine) {
        resets_wanted++;
        is_done = 0;
    }
    pthread_mutex_unlock(&world);
    if (!mine)
        return;
    pthread_cond_signal(&requested);
    if (await(h) < 0)
        return;
    begin(h, RESET_COMPLETED);
    reply(h);
    next(h);
}

static void serve(struct handler *h)
{
    switch (h->in[0]) {
    case OVERVIEW: overview(h); break;
    case AGENT_INFO: agent_info(h); break;
    case REGISTER: take_or_give_back(h, 1); break;
    case DEREGISTER: take_or_give_back(h, 0); break;
    case REGISTER_EVENT: acknowledge(h, REGISTER_EVENT_ACK, 0, 1); break;
    case GET_VALUE_IDS: list_values(h); break;
    case GET_VALUE: get_value(h); break;
    case SET_VALUE: set_value(h); break;
    case STEP: step(h); break;
    case RESET: reset(h); break;
    default: break; /* late acknowledgements, and what this server does not know */
    }
}

static void *handle(void *of)
{
    struct handler *h = of;
    nap();
    begin(h, INIT_ACK);
    put_byte(h, 1);
    put_byte(h, 1);
    reply(h);
    while (next(h) == 0) {
        if (h->length > 0 && h->in[0] == END) {
            acknowledge(h, END_ACK, 0, 0);
            break;
        }
        if (h->length > 0)
            serve(h);
    }
    release(h);
    close(h->socket);
    free(h);
    return NULL;
}

/* --- the threads -------------------------------------------------------------------------------------------------- */

/* Answers INIT: a handler with a socket of its own for each client. */
static void *listener(void *unused)
{
    (void)unused;
    for (;;) {
        unsigned char data[LARGEST];
        struct sockaddr_in client, here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof client;
        ssize_t length = recvfrom(main_socket, data, sizeof data, 0, (struct sockaddr *)&client, &size);
        if (length < 3 || data[0] != INIT || data[1] != 1 || data[2] != 1)
            continue; /* another command, form or version: silence */
        struct handler *h = calloc(1, sizeof *h);
        pthread_t thread;
        if (h == NULL)
            continue;
        h->socket = socket(AF_INET, SOCK_DGRAM, 0);
        if (h->socket < 0 || bind(h->socket, (struct sockaddr *)&here, sizeof here) < 0 ||
            connect(h->socket, (struct sockaddr *)&client, size) < 0 || pthread_create(&thread, NULL, handle, h) != 0) {
            if (h->socket >= 0)
                close(h->socket);
            free(h);
            continue;
        }
        pthread_detach(thread);
    }
    return NULL;
}

static void be_busy(void)
{
    struct timespec began, now;
    clock_gettime(CLOCK_MONOTONIC, &began);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - began.tv_sec) * 1000000 + (now.tv_nsec - began.tv_nsec) / 1000 < busy_us);
}

static void run_world(void)
{
    for (;;) {
        pthread_mutex_lock(&world);
        while (!steps_wanted && !resets_wanted)
            pthread_cond_wait(&requested, &world);
        int stepping = steps_wanted > 0;
        pthread_mutex_unlock(&world);
        if (stepping)
            be_busy();
        pthread_mutex_lock(&world);
        if (stepping) {
            steps_wanted--;
            values[TIME] += values[STEP_SIZE] * values[ITERATIONS];
            for (int i = 0; i < OUTPUTS; i++)
                values[OUTPUT_0 + i] += values[INPUT_0 + i] * values[STEP_SIZE];
        } else {
            resets_wanted--;
            values[TIME] = values[OUTPUT_0] = values[OUTPUT_1] = 0;
        }
        is_done = 1;
        pthread_mutex_unlock(&world);
        pthread_cond_broadcast(&done); /* lost on whoever does not sleep yet */
    }
}

static void leave(int number)
{
    (void)number;
    _exit(0);
}

int main(int count, char *words[])
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    pthread_t thread;
    here.sin_port = htons((unsigned short)(count > 1 ? atoi(words[1]) : 0));
    if (count > 2)
        busy_us = atol(words[2]);
    signal(SIGTERM, leave);
    main_socket = socket(AF_INET, SOCK_DGRAM, 0);
    if (main_socket < 0 || bind(main_socket, (struct sockaddr *)&here, sizeof here) < 0 ||
        getsockname(main_socket, (struct sockaddr *)&here, &size) < 0) {
        perror("stalling");
        return 1;
    }
    if (pthread_create(&thread, NULL, listener, NULL) != 0)
        return 1;
    printf("127.0.0.1:%d\n", ntohs(here.sin_port));
    fflush(stdout);
    run_world();
    return 0;
}
