/* Stands in front of QEMU in benchmarks: writes down when it was executed, then executes the real one with the same
 * arguments and descriptors. All ways of starting QEMU are measured by the same clock this way, from the same moment.
 *
 * The line goes to standard error, which every way of starting QEMU keeps in a log:
 *   exec-clock: MONOTONIC REALTIME        both in seconds
 */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#ifndef QEMU
#define QEMU "/usr/bin/qemu-system-x86_64"
#endif

int main(int argc, char **argv)
{
    struct timespec monotonic, realtime;
    char line[96];

    (void)argc;
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    clock_gettime(CLOCK_REALTIME, &realtime);
    int length = snprintf(line, sizeof line, "exec-clock: %lld.%09ld %lld.%09ld\n", (long long)monotonic.tv_sec,
                          monotonic.tv_nsec, (long long)realtime.tv_sec, realtime.tv_nsec);
    if (length < 0 || write(STDERR_FILENO, line, (size_t)length) != length)
        return 125;
    argv[0] = QEMU;
    execv(QEMU, argv);
    perror(QEMU);
    return 126;
}
