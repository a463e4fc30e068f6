//! The QEMU of the launcher's image, 10.0, probed on q35 with TCG: for what is planned in a cluster before there is a
//! pod. Written by a probe, not by hand; `host/src/qemu/tests.rs` compares it with that QEMU. Each line of a list has several names.

/// `qom-list-types` of `device`, without processors.
pub(super) const DEVICES: &[&str] = &[
    "AC97 AMDVI-PCI ES1370 ICH9-LPC ICH9-SMB PIIX3 PIIX4_PM VGA acpi-erst acpi-ged adlib am53c974 amd-iommu apic",
    "ati-vga base-xhci bochs-display ccid-card-emulated ccid-card-passthru cfi.pflash01 cirrus-vga cs4231a ctucan_pci",
    "cxl-downstream cxl-rp cxl-switch-mailbox-cci cxl-type3 cxl-upstream dc390 e1000 e1000-82544gc e1000-82545em",
    "e1000e edu emmc esp floppy fw_cfg_io fw_cfg_mem generic-sdhci gpex-pcihost gpex-root gpio_i2c guest-loader gus",
    "hda-duplex hda-micro hda-output hpet hv-balloon hv-syndbg hyperv-synic hyperv-testdev i2c-ddc i2c-echo i440FX",
    "i440FX-pcihost i6300esb i8042 i8042-mmio i82550 i82551 i82557a i82557b i82557c i82558a i82558b i82559a i82559b",
    "i82559c i82559er i82562 i8257 i82801 i82801b11-bridge ib700 ich9-ahci ich9-intel-hda ich9-usb-ehci1",
    "ich9-usb-ehci2 ich9-usb-uhci1 ich9-usb-uhci2 ich9-usb-uhci3 ich9-usb-uhci4 ich9-usb-uhci5 ich9-usb-uhci6 ide-cd",
    "ide-cf ide-hd igb igbvf imx-usdhc imx.usbphy intel-hda intel-iommu ioapic ioh3420 ipmi-bmc-extern ipmi-bmc-sim",
    "ipoctal232 isa-applesmc isa-cirrus-vga isa-debug-exit isa-debugcon isa-fdc isa-i8259 isa-ide isa-ipmi-bt",
    "isa-ipmi-kcs isa-parallel isa-pcspk isa-pit isa-serial isa-vga isabus-bridge ivshmem-doorbell ivshmem-flat",
    "ivshmem-plain kvaser_pci kvm-apic kvm-i8259 kvm-ioapic kvm-pit kvmclock kvmvapic loader lsi53c810 lsi53c895a",
    "mc146818rtc mch megasas megasas-gen2 migration mioe3680_pci mptsas1068 ne2k_isa ne2k_pci nec-usb-xhci nvdimm",
    "nvme nvme-ns nvme-subsys pc-dimm pc-testdev pci-bridge pci-bridge-seat pci-ipmi-bt pci-ipmi-kcs pci-ohci",
    "pci-serial pci-serial-2x pci-serial-4x pci-testdev pcie-pci-bridge pcie-root-port pcm3680_pci pcnet piix3-ide",
    "piix3-usb-uhci piix4-ide piix4-isa piix4-usb-uhci port92 ps2-kbd ps2-mouse pvpanic pvpanic-pci pvscsi pxb",
    "pxb-cxl pxb-cxl-host pxb-host pxb-pcie q35-pcihost qemu-xhci ramfb remote-pcihost rocker rtl8139 s3c-sdhci sb16",
    "scsi-block scsi-cd scsi-generic scsi-hd sd-card sd-card-spi sdhci-pci secondary-vga serial sgx-epc smbus-eeprom",
    "smbus-ipmi sysbus-esp sysbus-xhci tpci200 tpm-crb tpm-tis tulip u2f-passthru uefi-vars-sysbus uefi-vars-x64 ufs",
    "ufs-lu usb-audio usb-bot usb-braille usb-ccid usb-ehci usb-host usb-hub usb-kbd usb-mouse usb-mtp usb-net",
    "usb-redir usb-serial usb-storage usb-tablet usb-uas usb-wacom-tablet vfio-pci vfio-pci-igd-lpc-bridge",
    "vfio-pci-nohotplug vhost-scsi vhost-scsi-pci vhost-scsi-pci-non-transitional vhost-scsi-pci-transitional",
    "vhost-user-blk vhost-user-blk-pci vhost-user-blk-pci-non-transitional vhost-user-blk-pci-transitional",
    "vhost-user-device vhost-user-device-pci vhost-user-fs-device vhost-user-fs-pci vhost-user-gpio-device",
    "vhost-user-gpio-pci vhost-user-gpu vhost-user-gpu-pci vhost-user-i2c-device vhost-user-i2c-pci vhost-user-input",
    "vhost-user-input-pci vhost-user-rng vhost-user-rng-pci vhost-user-scsi vhost-user-scsi-pci",
    "vhost-user-scsi-pci-non-transitional vhost-user-scsi-pci-transitional vhost-user-snd vhost-user-snd-pci",
    "vhost-user-vga vhost-user-vsock-device vhost-user-vsock-pci vhost-user-vsock-pci-non-transitional",
    "vhost-vdpa-device vhost-vdpa-device-pci vhost-vdpa-device-pci-non-transitional",
    "vhost-vdpa-device-pci-transitional vhost-vsock-device vhost-vsock-pci vhost-vsock-pci-non-transitional",
    "virtconsole virtio-9p-device virtio-9p-pci virtio-9p-pci-non-transitional virtio-9p-pci-transitional",
    "virtio-balloon-device virtio-balloon-pci virtio-balloon-pci-non-transitional virtio-balloon-pci-transitional",
    "virtio-blk-device virtio-blk-pci virtio-blk-pci-non-transitional virtio-blk-pci-transitional",
    "virtio-crypto-device virtio-crypto-pci virtio-gpu-device virtio-gpu-pci virtio-input-host-device",
    "virtio-input-host-pci virtio-iommu-device virtio-iommu-pci virtio-keyboard-device virtio-keyboard-pci virtio-mem",
    "virtio-mem-pci virtio-mmio virtio-mouse-device virtio-mouse-pci virtio-multitouch-device virtio-multitouch-pci",
    "virtio-net-device virtio-net-pci virtio-net-pci-non-transitional virtio-net-pci-transitional virtio-pmem",
    "virtio-pmem-pci virtio-rng-device virtio-rng-pci virtio-rng-pci-non-transitional virtio-rng-pci-transitional",
    "virtio-scsi-device virtio-scsi-pci virtio-scsi-pci-non-transitional virtio-scsi-pci-transitional",
    "virtio-serial-device virtio-serial-pci virtio-serial-pci-non-transitional virtio-serial-pci-transitional",
    "virtio-sound-device virtio-sound-pci virtio-tablet-device virtio-tablet-pci virtio-vga virtserialport",
    "vmbus-bridge vmclock vmcoreinfo vmgenid vmmouse vmport vmware-svga vmxnet3 x-pci-proxy-dev x3130-upstream",
    "xen-backend xen-bridge xen-cdrom xen-console xen-disk xen-evtchn xen-gnttab xen-net-device xen-overlay",
    "xen-platform xen-primary-console xen-sysdev xen-xenstore xio3130-downstream",
];

/// `qom-list-types` of `user-creatable`.
pub(super) const OBJECTS: &[&str] = &[
    "acpi-generic-initiator acpi-generic-port authz-list authz-list-file authz-simple can-bus can-host-socketcan",
    "colo-compare cryptodev-backend cryptodev-backend-builtin cryptodev-vhost-user dbus-vmstate filter-buffer",
    "filter-dump filter-mirror filter-redirector filter-replay filter-rewriter input-barrier input-linux iommufd",
    "iothread main-loop memory-backend-file memory-backend-memfd memory-backend-ram memory-backend-shm",
    "pr-manager-helper qtest rng-builtin rng-egd rng-random secret secret_keyring sev-guest sev-snp-guest",
    "thread-context throttle-group tls-cipher-suites tls-creds-anon tls-creds-psk tls-creds-x509 x-remote-object",
];

/// Members of `NetClientDriver`.
pub(super) const NETDEVS: &[&str] =
    &["bridge dgram hubport l2tpv3 netmap nic none socket stream tap user vde vhost-user vhost-vdpa"];

/// `query-cpu-definitions`.
pub(super) const CPU_MODELS: &[&str] = &[
    "486 486-v1 Broadwell Broadwell-IBRS Broadwell-noTSX Broadwell-noTSX-IBRS Broadwell-v1 Broadwell-v2 Broadwell-v3",
    "Broadwell-v4 Cascadelake-Server Cascadelake-Server-noTSX Cascadelake-Server-v1 Cascadelake-Server-v2",
    "Cascadelake-Server-v3 Cascadelake-Server-v4 Cascadelake-Server-v5 ClearwaterForest ClearwaterForest-v1 Conroe",
    "Conroe-v1 Cooperlake Cooperlake-v1 Cooperlake-v2 Denverton Denverton-v1 Denverton-v2 Denverton-v3 Dhyana",
    "Dhyana-v1 Dhyana-v2 EPYC EPYC-Genoa EPYC-Genoa-v1 EPYC-IBPB EPYC-Milan EPYC-Milan-v1 EPYC-Milan-v2 EPYC-Rome",
    "EPYC-Rome-v1 EPYC-Rome-v2 EPYC-Rome-v3 EPYC-Rome-v4 EPYC-v1 EPYC-v2 EPYC-v3 EPYC-v4 GraniteRapids",
    "GraniteRapids-v1 GraniteRapids-v2 Haswell Haswell-IBRS Haswell-noTSX Haswell-noTSX-IBRS Haswell-v1 Haswell-v2",
    "Haswell-v3 Haswell-v4 Icelake-Server Icelake-Server-noTSX Icelake-Server-v1 Icelake-Server-v2 Icelake-Server-v3",
    "Icelake-Server-v4 Icelake-Server-v5 Icelake-Server-v6 Icelake-Server-v7 IvyBridge IvyBridge-IBRS IvyBridge-v1",
    "IvyBridge-v2 KnightsMill KnightsMill-v1 Nehalem Nehalem-IBRS Nehalem-v1 Nehalem-v2 Opteron_G1 Opteron_G1-v1",
    "Opteron_G2 Opteron_G2-v1 Opteron_G3 Opteron_G3-v1 Opteron_G4 Opteron_G4-v1 Opteron_G5 Opteron_G5-v1 Penryn",
    "Penryn-v1 SandyBridge SandyBridge-IBRS SandyBridge-v1 SandyBridge-v2 SapphireRapids SapphireRapids-v1",
    "SapphireRapids-v2 SapphireRapids-v3 SierraForest SierraForest-v1 SierraForest-v2 Skylake-Client",
    "Skylake-Client-IBRS Skylake-Client-noTSX-IBRS Skylake-Client-v1 Skylake-Client-v2 Skylake-Client-v3",
    "Skylake-Client-v4 Skylake-Server Skylake-Server-IBRS Skylake-Server-noTSX-IBRS Skylake-Server-v1",
    "Skylake-Server-v2 Skylake-Server-v3 Skylake-Server-v4 Skylake-Server-v5 Snowridge Snowridge-v1 Snowridge-v2",
    "Snowridge-v3 Snowridge-v4 Westmere Westmere-IBRS Westmere-v1 Westmere-v2 YongFeng YongFeng-v1 YongFeng-v2 athlon",
    "athlon-v1 base core2duo core2duo-v1 coreduo coreduo-v1 host kvm32 kvm32-v1 kvm64 kvm64-v1 max n270 n270-v1",
    "pentium pentium-v1 pentium2 pentium2-v1 pentium3 pentium3-v1 phenom phenom-v1 qemu32 qemu32-v1 qemu64 qemu64-v1",
];

/// True properties of `max` in full expansion under TCG.
pub(super) const TCG_CPU_FEATURES: &[&str] = &[
    "3dnow 3dnowext 3dnowprefetch abm acpi adx aes apic arat avx avx2 bmi1 bmi2 check clflush clflushopt clwb cmov",
    "cmp-legacy cmp_legacy cmpccxadd cpuid-0xb cr8legacy cx16 cx8 de erms f16c fill-mtrr-mask fma fpu fsgsbase fsrc",
    "fsrm fsrs full-cpuid-auto-level fxsr fzrm hypervisor i64 kvm l3-cache la57 lahf-lm lahf_lm legacy-cache lm mca",
    "mce migratable mmx mmxext monitor movbe mpx msr mtrr npt nx pae pat pclmuldq pclmulqdq pdpe1gb pge pks pku pmu",
    "pni popcnt pse pse36 rdpid rdrand rdseed rdtscp sep sha-ni smap smep ss sse sse2 sse3 sse4-1 sse4-2 sse4.1",
    "sse4.2 sse4_1 sse4_2 sse4a ssse3 svm svme-addr-chk syscall tcg-cpuid tsc umip vaes vgif vmware-cpuid-freq",
    "wbnoinvd x-amd-topoext-features-only x-intel-pt-auto-level x-l1-cache-per-thread x-migrate-smi-count",
    "x-vendor-cpuid-only x2apic xd xgetbv1 xsave xsaveerptr xsaveopt",
];

/// `query-machines`: name, most vCPUs, and whether it is deprecated.
pub(super) const Q35_MACHINES: &[(&str, u32, bool)] = &[
    ("pc-q35-10.0", 4096, false),
    ("pc-q35-2.10", 288, true),
    ("pc-q35-2.11", 288, true),
    ("pc-q35-2.12", 288, true),
    ("pc-q35-2.4", 255, true),
    ("pc-q35-2.5", 255, true),
    ("pc-q35-2.6", 255, true),
    ("pc-q35-2.7", 255, true),
    ("pc-q35-2.8", 288, true),
    ("pc-q35-2.9", 288, true),
    ("pc-q35-3.0", 288, true),
    ("pc-q35-3.1", 288, true),
    ("pc-q35-4.0", 288, true),
    ("pc-q35-4.0.1", 288, true),
    ("pc-q35-4.1", 288, true),
    ("pc-q35-4.2", 288, true),
    ("pc-q35-5.0", 288, true),
    ("pc-q35-5.1", 288, true),
    ("pc-q35-5.2", 288, true),
    ("pc-q35-6.0", 288, true),
    ("pc-q35-6.1", 288, true),
    ("pc-q35-6.2", 288, true),
    ("pc-q35-7.0", 288, true),
    ("pc-q35-7.1", 288, false),
    ("pc-q35-7.2", 288, false),
    ("pc-q35-8.0", 288, false),
    ("pc-q35-8.1", 1024, false),
    ("pc-q35-8.2", 1024, false),
    ("pc-q35-9.0", 4096, false),
    ("pc-q35-9.1", 4096, false),
    ("pc-q35-9.2", 4096, false),
];
