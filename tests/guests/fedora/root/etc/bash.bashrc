# Of every interactive shell: Fedora's prompt.
[ -z "$PS1" ] || PS1='[\u@\h \W]\$ '
