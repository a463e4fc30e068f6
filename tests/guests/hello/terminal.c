/* Starts a shell as a terminal's own: a session whose controlling terminal it is, with job control and Ctrl-C.
 *
 *   terminal DEVICE SHELL
 *
 * Beyond `setsid -c` it undoes that background jobs of a script ignore interrupts (POSIX, 2.9.3.1), which the shell and
 * everything started in it would inherit.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int file;
    if (argc != 3 || setsid() < 0 || (file = open(argv[1], O_RDWR)) < 0 || ioctl(file, TIOCSCTTY, 1) != 0) {
        perror("terminal");
        return 1;
    }
    for (int standard = 0; standard < 3; standard++)
        dup2(file, standard);
    if (file > 2)
        close(file);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
    execl(argv[2], "-sh", (char *)NULL);
    return 1;
}
