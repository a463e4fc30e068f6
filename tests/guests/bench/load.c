/* Load for benchmarks, run inside a guest: one measurement, one line `bench: WHAT VALUE UNIT` on standard output.
 *
 *   load write DEVICE MIB          sequential, 1 MiB at a time, ends with fsync
 *   load read DEVICE MIB           the same, reading
 *   load random-read DEVICE S      4 KiB at random places for S seconds, one after the other
 *   load random-write DEVICE S
 *   load send ADDRESS PORT S       TCP, as fast as it goes
 *   load receive ADDRESS PORT S
 *
 * Disks are opened with O_DIRECT: the guest's page cache is not what is measured. The sender's figure counts what the
 * receiver acknowledged by its close.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LARGE = 1 << 20, SMALL = 4096 };

static char *buffer;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

static int open_disk(const char *path, int flags)
{
    int disk = open(path, flags | O_DIRECT);
    if (disk < 0)
        give_up(path);
    return disk;
}

static void sequential(const char *what, const char *path, long mib)
{
    int writes = strcmp(what, "write") == 0;
    int disk = open_disk(path, writes ? O_WRONLY : O_RDONLY);
    double began = now();
    for (long done = 0; done < mib; done++)
        if ((writes ? write(disk, buffer, LARGE) : read(disk, buffer, LARGE)) != LARGE)
            give_up(what);
    if (writes && fsync(disk) != 0)
        give_up("fsync");
    printf("bench: %s %.2f MiB/s\n", what, (double)mib / (now() - began));
}

static void at_random(const char *what, const char *path, double seconds)
{
    int writes = strcmp(what, "random-write") == 0;
    int disk = open_disk(path, writes ? O_WRONLY : O_RDONLY);
    off_t blocks = lseek(disk, 0, SEEK_END) / SMALL;
    uint64_t state = 88172645463325252u; /* xorshift64 (Marsaglia, 2003): the same places in every run */
    long done = 0;
    double began = now(), end = began + seconds;
    if (blocks < 1)
        give_up("measure the disk");
    while (now() < end) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        off_t at = (off_t)(state % (uint64_t)blocks) * SMALL;
        if ((writes ? pwrite(disk, buffer, SMALL, at) : pread(disk, buffer, SMALL, at)) != SMALL)
            give_up(what);
        done++;
    }
    printf("bench: %s %.1f IOPS\n", what, (double)done / (now() - began));
}

static int connect_to(const char *address, const char *port)
{
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int connection = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, address, &peer.sin_addr) != 1 || connect(connection, (void *)&peer, sizeof peer) != 0)
        give_up(address);
    return connection;
}

static void stream(const char *what, int connection, double seconds)
{
    int sends = strcmp(what, "send") == 0;
    double bytes = 0, began = now(), end = began + seconds;
    while (now() < end) {
        ssize_t count = sends ? write(connection, buffer, LARGE) : read(connection, buffer, LARGE);
        if (count <= 0)
            give_up(what);
        bytes += (double)count;
    }
    if (sends) {
        shutdown(connection, SHUT_WR);
        while (read(connection, buffer, LARGE) > 0)
            continue;
    }
    printf("bench: %s %.2f MiB/s\n", what, bytes / LARGE / (now() - began));
}

int main(int argc, char **argv)
{
    if (argc < 4 || posix_memalign((void **)&buffer, SMALL, LARGE) != 0)
        return 64;
    memset(buffer, 0x5a, LARGE);
    if (strcmp(argv[1], "write") == 0 || strcmp(argv[1], "read") == 0)
        sequential(argv[1], argv[2], atol(argv[3]));
    else if (strncmp(argv[1], "random-", 7) == 0)
        at_random(argv[1], argv[2], atof(argv[3]));
    else if (argc == 5)
        stream(argv[1], connect_to(argv[2], argv[3]), atof(argv[4]));
    else
        return 64;
    return 0;
}
