/* Sends what no DHCP client would: to the servers of DHCPv4 and DHCPv6 and to the router, COUNT packets to each.
 *
 *   dhcp-garbage INTERFACE COUNT
 *
 * Noise, sound beginnings with noise behind them, options that end outside of their packet, and packets as long as the
 * link takes. The same each time, so that what it finds can be found again.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LONGEST = 1400, COOKIE = 236, OPTIONS = 240 };

static uint32_t state = 2463534242u;

static uint32_t chance(void)
{
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    return state;
}

/* A packet of one of four kinds; returns its length. */
static size_t compose(unsigned char *packet, const unsigned char *start, size_t known)
{
    size_t length = chance() % LONGEST;
    for (size_t at = 0; at < LONGEST; at++)
        packet[at] = chance();
    switch (chance() % 4) {
    case 0: return length;
    case 1: memcpy(packet, start, known); return known + length % (LONGEST - known);
    case 2: memcpy(packet, start, known); memset(packet + known, 0xff, LONGEST - known); return LONGEST;
    default: memcpy(packet, start, known); return length % (known + 1);
    }
}

static int connected(int family, int kind, int protocol, const char *interface)
{
    int sock = socket(family, kind, protocol), on = 1;
    setsockopt(sock, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    setsockopt(sock, SOL_SOCKET, SO_BINDTODEVICE, interface, strlen(interface) + 1);
    return sock;
}

int main(int argc, char **argv)
{
    unsigned char packet[LONGEST], v4[OPTIONS] = { 1, 1, 6 }, v6[] = { 1, 1, 2, 3, 0, 1, 0, 10, 0, 3, 0, 1, 2, 0, 0, 0, 0, 1, 0, 3 };
    unsigned char solicitation[8] = { ND_ROUTER_SOLICIT };
    if (argc != 3)
        return 1;
    unsigned scope = if_nametoindex(argv[1]);
    struct sockaddr_in servers = { .sin_family = AF_INET, .sin_port = htons(67), .sin_addr.s_addr = INADDR_BROADCAST };
    struct sockaddr_in6 servers6 = { .sin6_family = AF_INET6, .sin6_port = htons(547), .sin6_scope_id = scope };
    struct sockaddr_in6 routers = { .sin6_family = AF_INET6, .sin6_scope_id = scope };
    inet_pton(AF_INET6, "ff02::1:2", &servers6.sin6_addr);
    inet_pton(AF_INET6, "ff02::2", &routers.sin6_addr);
    memcpy(v4 + COOKIE, "\x63\x82\x53\x63", 4);
    int udp = connected(AF_INET, SOCK_DGRAM, 0, argv[1]), udp6 = connected(AF_INET6, SOCK_DGRAM, 0, argv[1]);
    int icmp6 = connected(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6, argv[1]);
    for (int count = atoi(argv[2]); count > 0; count--) {
        size_t length = compose(packet, v4, sizeof v4);
        sendto(udp, packet, length, 0, (struct sockaddr *)&servers, sizeof servers);
        length = compose(packet, v6, sizeof v6);
        sendto(udp6, packet, length, 0, (struct sockaddr *)&servers6, sizeof servers6);
        length = compose(packet, solicitation, sizeof solicitation);
        sendto(icmp6, packet, length, 0, (struct sockaddr *)&routers, sizeof routers);
    }
    return 0;
}
