/* A wall clock that can be stepped and syncs that can be made to fail, for a server of the tests.
 *
 * Preloaded (LD_PRELOAD), it answers in the place of the C library. KVORUM_TEST_CONTROL names a
 * file, mapped at the start, that the tests write to while the server runs:
 *
 *   offset 0   int64   nanoseconds that CLOCK_REALTIME is ahead of the machine's
 *   offset 8   int32   not zero: every fsync and fdatasync fails with EIO
 *
 * Only the wall clock moves: timers and sleeps go by the monotonic one, as on a real machine whose
 * clock is stepped. A failing sync does not reach the kernel.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct control {
    int64_t clock_offset_ns;
    int32_t syncs_fail;
};

static volatile struct control *control;

__attribute__((constructor)) static void map_control(void)
{
    const char *path = getenv("KVORUM_TEST_CONTROL");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *mapped;
    if (file < 0)
        return;
    mapped = mmap(NULL, sizeof(struct control), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        control = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && clock == CLOCK_REALTIME && control) {
        int64_t total = (int64_t)time->tv_sec * 1000000000 + time->tv_nsec + control->clock_offset_ns;
        time->tv_sec = total / 1000000000;
        time->tv_nsec = total % 1000000000;
    }
    return result;
}

static int sync_with(long call, int file)
{
    if (control && control->syncs_fail) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(call, file);
}

int fsync(int file)
{
    return sync_with(SYS_fsync, file);
}

int fdatasync(int file)
{
    return sync_with(SYS_fdatasync, file);
}
