# A FAT partition from which both kinds of firmware start the same kernel: BIOS by syslinux, EFI by systemd-boot.
# Made without mounting anything. Sourced by the scripts that make guests.

boot_partition_packages=(mtools dosfstools)

# make_boot_partition WORK OUT MIB KERNEL INITRD ARGUMENTS: writes the file system to OUT.
make_boot_partition() {
    local work=$1 out=$2 mib=$3 kernel_image=$4 initrd=$5 arguments=$6
    # The same input gives the same bytes: FAT's first day for whatever mtools would stamp.
    local -x SOURCE_DATE_EPOCH=315532800
    [ -d "$work/loaders" ] || unpack_packages "$work/loaders" syslinux syslinux-common systemd-boot-efi
    truncate -s "${mib}M" "$out"
    mkfs.vfat --invariant -n BOOT -i 47415242 -g 16/63 -h 2048 "$out" >/dev/null
    mmd -i "$out" ::EFI ::EFI/BOOT ::loader ::loader/entries
    mcopy -i "$out" "$kernel_image" ::vmlinuz
    mcopy -i "$out" "$initrd" ::initrd
    mcopy -i "$out" "$work/loaders/usr/lib/systemd/boot/efi/systemd-bootx64.efi" ::EFI/BOOT/BOOTX64.EFI
    mcopy -i "$out" - ::loader/entries/linux.conf <<ENTRY
title Linux
linux /vmlinuz
initrd /initrd
options $arguments
ENTRY
    mcopy -i "$out" - ::loader/loader.conf <<LOADER
default linux.conf
timeout 0
LOADER
    mcopy -i "$out" - ::syslinux.cfg <<SYSLINUX
DEFAULT linux
PROMPT 0
LABEL linux
  KERNEL /vmlinuz
  INITRD /initrd
  APPEND $arguments
SYSLINUX
    "$work/loaders/usr/bin/syslinux" --install "$out"
}

# install_boot_partition WORK DISK PARTITION: puts the file system at the first MiB of a partitioned disk, with the boot
# sector that starts the partition marked as bootable.
install_boot_partition() {
    dd if="$3" of="$2" bs=1M seek=1 conv=notrunc,sparse status=none
    dd if="$1/loaders/usr/lib/syslinux/mbr/mbr.bin" of="$2" bs=440 count=1 conv=notrunc status=none
}
