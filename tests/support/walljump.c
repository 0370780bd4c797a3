/* Jump the wall clock of one process: CLOCK_REALTIME readers get the offset, in nanoseconds, that
   stands in the mapped file; sleeps and the monotonic clock are untouched. Preloaded by tests. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long long *offset;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void init(void) {
    const char *name = getenv("WALLJUMP_FILE");
    int fd = name ? open(name, O_RDWR) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(0, 8, PROT_READ, MAP_SHARED, fd, 0);
    if (page != MAP_FAILED) offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (!result && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        long long ns = now->tv_nsec + *offset % 1000000000LL;
        now->tv_sec += *offset / 1000000000LL + (ns >= 1000000000LL) - (ns < 0);
        now->tv_nsec = (ns + 1000000000LL) % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec t;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    now->tv_sec = t.tv_sec;
    now->tv_usec = t.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out) *out = t.tv_sec;
    return t.tv_sec;
}
