/* Sends each datagram back to where it came from, by IPv4 and IPv6.
 *
 *   udp-echo PORT
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { LONGEST = 65536 };

int main(int argc, char **argv)
{
    struct sockaddr_in6 own = { .sin6_family = AF_INET6 }, sender;
    static char datagram[LONGEST];
    int sock = socket(AF_INET6, SOCK_DGRAM, 0);
    if (argc == 2)
        own.sin6_port = htons(atoi(argv[1]));
    if (argc != 2 || sock < 0 || bind(sock, (struct sockaddr *)&own, sizeof own) != 0) {
        perror("udp-echo");
        return 1;
    }
    for (;;) {
        socklen_t size = sizeof sender;
        ssize_t length = recvfrom(sock, datagram, LONGEST, 0, (struct sockaddr *)&sender, &size);
        if (length >= 0)
            sendto(sock, datagram, length, 0, (struct sockaddr *)&sender, size);
    }
}
