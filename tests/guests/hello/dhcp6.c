/* Asks for an IPv6 address by DHCPv6 and prints it: what busybox lacks and stateful networks need.
 *
 *   dhcp6 INTERFACE TRIES
 *
 * One identity association, one address, no renewal: a test guest's life is shorter than a lease. Follows RFC 8415:
 * Solicit with rapid commit, answered by a Reply, or by an Advertise that a Request then accepts.
 */
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SOLICIT = 1, ADVERTISE = 2, REQUEST = 3, REPLY = 7 };
enum { CLIENT_ID = 1, SERVER_ID = 2, IA_NA = 3, IA_ADDR = 5, ELAPSED_TIME = 8, RAPID_COMMIT = 14 };
enum { CLIENT_PORT = 546, SERVER_PORT = 547, PACKET_MAX = 1500, IA_HEAD = 12 };

struct packet { unsigned char bytes[PACKET_MAX]; size_t length; };
struct option { const unsigned char *value; size_t length; };

static void add(struct packet *packet, unsigned code, const void *value, size_t length)
{
    unsigned char *end = packet->bytes + packet->length;
    if (packet->length + 4 + length > PACKET_MAX)
        return;
    end[0] = code >> 8, end[1] = code, end[2] = length >> 8, end[3] = length;
    memcpy(end + 4, value, length);
    packet->length += 4 + length;
}

/* The first option `code` of the options in [bytes, bytes + length). */
static int find(struct option *found, unsigned code, const unsigned char *bytes, size_t length)
{
    while (length >= 4) {
        size_t inside = bytes[2] << 8 | bytes[3];
        if (inside > length - 4)
            return 0;
        if ((unsigned)(bytes[0] << 8 | bytes[1]) == code) {
            *found = (struct option){ bytes + 4, inside };
            return 1;
        }
        bytes += 4 + inside, length -= 4 + inside;
    }
    return 0;
}

static int open_socket(const char *interface, struct sockaddr_in6 *servers, unsigned char mac[6])
{
    int sock = socket(AF_INET6, SOCK_DGRAM, 0), on = 1;
    struct ifreq request = { 0 };
    struct sockaddr_in6 own = { .sin6_family = AF_INET6, .sin6_port = htons(CLIENT_PORT) };
    strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
    if (sock < 0 || ioctl(sock, SIOCGIFHWADDR, &request) != 0)
        return -1;
    memcpy(mac, request.ifr_hwaddr.sa_data, 6);
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(sock, SOL_SOCKET, SO_BINDTODEVICE, interface, strlen(interface) + 1);
    *servers = (struct sockaddr_in6){ .sin6_family = AF_INET6, .sin6_port = htons(SERVER_PORT),
                                      .sin6_scope_id = if_nametoindex(interface) };
    inet_pton(AF_INET6, "ff02::1:2", &servers->sin6_addr);
    return bind(sock, (struct sockaddr *)&own, sizeof own) == 0 ? sock : -1;
}

static void compose(struct packet *out, int kind, const unsigned char transaction[3], const unsigned char mac[6])
{
    unsigned char identity[10] = { 0, 3, 0, 1 }, association[IA_HEAD] = { 0, 0, 0, 1 }, elapsed[2] = { 0 };
    memcpy(identity + 4, mac, 6); /* DUID-LL, Ethernet */
    out->bytes[0] = kind;
    memcpy(out->bytes + 1, transaction, 3);
    out->length = 4;
    add(out, CLIENT_ID, identity, sizeof identity);
    add(out, ELAPSED_TIME, elapsed, sizeof elapsed);
    if (kind == SOLICIT) {
        add(out, RAPID_COMMIT, "", 0);
        add(out, IA_NA, association, sizeof association);
    }
}

/* The answer to our transaction that arrives within a second. */
static int await(int sock, const unsigned char transaction[3], struct packet *in)
{
    struct pollfd ready = { .fd = sock, .events = POLLIN };
    while (poll(&ready, 1, 1000) > 0) {
        ssize_t length = recv(sock, in->bytes, PACKET_MAX, 0);
        if (length >= 4 && memcmp(in->bytes + 1, transaction, 3) == 0) {
            in->length = length;
            return in->bytes[0];
        }
    }
    return -1;
}

static int print_address(const struct packet *in)
{
    struct option association, address;
    char text[INET6_ADDRSTRLEN];
    if (!find(&association, IA_NA, in->bytes + 4, in->length - 4) || association.length < IA_HEAD ||
        !find(&address, IA_ADDR, association.value + IA_HEAD, association.length - IA_HEAD) || address.length < 24)
        return 0;
    puts(inet_ntop(AF_INET6, address.value, text, sizeof text));
    return 1;
}

int main(int argc, char **argv)
{
    struct sockaddr_in6 servers;
    struct packet in, out;
    struct option server, association;
    unsigned char mac[6], transaction[3];
    int sock = argc == 3 ? open_socket(argv[1], &servers, mac) : -1;
    if (sock < 0)
        return 1;
    for (int tries = atoi(argv[2]); tries > 0; tries--) {
        getrandom(transaction, sizeof transaction, 0);
        compose(&out, SOLICIT, transaction, mac);
        /* Fails while the link-local address is not there yet. */
        if (sendto(sock, out.bytes, out.length, 0, (struct sockaddr *)&servers, sizeof servers) < 0) {
            usleep(50000);
            continue;
        }
        int kind = await(sock, transaction, &in);
        if (kind == ADVERTISE && find(&server, SERVER_ID, in.bytes + 4, in.length - 4) &&
            find(&association, IA_NA, in.bytes + 4, in.length - 4)) {
            compose(&out, REQUEST, transaction, mac);
            add(&out, SERVER_ID, server.value, server.length);
            add(&out, IA_NA, association.value, association.length);
            sendto(sock, out.bytes, out.length, 0, (struct sockaddr *)&servers, sizeof servers);
            kind = await(sock, transaction, &in);
        }
        if (kind == REPLY && print_address(&in))
            return 0;
    }
    return 1;
}
