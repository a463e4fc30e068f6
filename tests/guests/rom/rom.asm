; A guest of 64 KiB that is its own firmware: QEMU starts it with `-bios`, and it runs within a tenth of a second also
; where KVM only emulates and ordinary kernels never finish booting. For tests of everything around the guest.
;
; It says lines starting with `garboard-rom: ` on COM1. What it does is chosen when it is assembled:
;   nasm -f bin -D OFF rom.asm        say that it runs, list virtio devices, count in ring 3 of long mode, power off
;   nasm -f bin -D HEARTBEAT rom.asm  say that it runs, list virtio devices, then beat ten times a second until the
;                                     power button is pressed
;   nasm -f bin -D HALT rom.asm       say that it runs, then never react to anything again
;
; Sources: Intel ICH9 datasheet (LPC bridge 00:1f.0, power management), 8259A, 8254 and 16550 datasheets, QEMU's
; hw/acpi/ich9.c and docs/specs/acpi_pci_hotplug.

COM1            equ 0x3f8
PIC1            equ 0x20
PIT             equ 0x40
PCI_ADDRESS     equ 0xcf8
PCI_DATA        equ 0xcfc
LPC_BRIDGE      equ 0x8000f800          ; 00:1f.0, as PCI_ADDRESS wants it
PM_BASE         equ 0x600               ; where SeaBIOS puts it too: the power-off port is then 0x604
PM1_STATUS      equ PM_BASE
PM1_ENABLE      equ PM_BASE + 2
PM1_CONTROL     equ PM_BASE + 4
POWER_BUTTON    equ 1 << 8
SLEEP_S5        equ 1 << 13             ; SLP_EN with SLP_TYP 0, which is S5 on q35
VIRTIO_VENDOR   equ 0x1af4

; Memory: everything that is written lies below the stack.
BEATS           equ 0x1000              ; dword
NEXT_BUS        equ 0x1004              ; byte
STACK           equ 0x7000
PAGE_TABLES     equ 0x8000              ; three pages
ROM_BASE        equ 0xf0000
RING3_ROUNDS    equ 20000000

LOCAL_APIC      equ 0xfee00000
EFER            equ 0xc0000080
EFER_LME        equ 1 << 8
SYSENTER_CS     equ 0x174
RFLAGS_IOPL3    equ 0x3002

        bits 16
        org 0

start:
        cli
        cld
        mov ax, cs
        mov ds, ax
        xor ax, ax
        mov es, ax
        mov ss, ax
        mov sp, STACK
        call enable_power_management
        mov si, text_started
        call print
%ifdef HALT
        mov si, text_halted
        call print
.forever:
        hlt
        jmp .forever
%endif
        call list_virtio
%ifdef HEARTBEAT
        jmp heartbeat
%endif
        jmp enter_long_mode

; ---- serial port -------------------------------------------------------------------------------------------------

; Prints the zero-terminated string at ds:si.
print:
        lodsb
        test al, al
        jz .done
        call print_character
        jmp print
.done:
        ret

print_character:
        push dx
        push ax
        mov dx, COM1 + 5
.full:
        in al, dx
        test al, 0x20                   ; transmitter holding register empty
        jz .full
        pop ax
        mov dx, COM1
        out dx, al
        pop dx
        ret

; Prints cl hexadecimal digits of eax, the highest first.
print_hex:
        push eax
        push ebx
        push cx
        mov ebx, eax
        mov ch, cl
        mov cl, 8
        sub cl, ch
        shl cl, 2
        shl ebx, cl
.digit:
        rol ebx, 4
        mov al, bl
        and al, 0x0f
        add al, '0'
        cmp al, '9'
        jbe .print
        add al, 'a' - '9' - 1
.print:
        call print_character
        dec ch
        jnz .digit
        pop cx
        pop ebx
        pop eax
        ret

; Prints eax in decimal.
print_decimal:
        push eax
        push ebx
        push edx
        push cx
        mov ebx, 10
        xor cx, cx
.divide:
        xor edx, edx
        div ebx
        push dx
        inc cx
        test eax, eax
        jnz .divide
.digit:
        pop ax
        add al, '0'
        call print_character
        loop .digit
        pop cx
        pop edx
        pop ebx
        pop eax
        ret

print_newline:
        mov al, 13
        call print_character
        mov al, 10
        jmp print_character

; ---- PCI ---------------------------------------------------------------------------------------------------------

; eax = the configuration register whose address is eax.
pci_read:
        push dx
        mov dx, PCI_ADDRESS
        out dx, eax
        mov dx, PCI_DATA
        in eax, dx
        pop dx
        ret

; Writes ebx to the configuration register whose address is eax.
pci_write:
        push dx
        push eax
        mov dx, PCI_ADDRESS
        out dx, eax
        mov eax, ebx
        mov dx, PCI_DATA
        out dx, eax
        pop eax
        pop dx
        ret

; The power management registers answer at PM_BASE from here on; the power button is reported.
enable_power_management:
        mov eax, LPC_BRIDGE | 0x40
        mov ebx, PM_BASE | 1
        call pci_write
        mov eax, LPC_BRIDGE | 0x44
        mov ebx, 0x80                   ; ACPI_EN
        call pci_write
        mov dx, PM1_ENABLE
        mov ax, POWER_BUTTON
        out dx, ax
        ret

; Says each virtio function of bus 0 and of the buses behind its bridges, which are numbered here.
list_virtio:
        mov byte [es:NEXT_BUS], 1
        mov ebx, 0x80000000
.function:
        mov eax, ebx
        call pci_read
        cmp ax, 0xffff
        je .next
        call say_if_virtio
        lea eax, [ebx + 0x0c]
        call pci_read
        shr eax, 16
        and al, 0x7f
        cmp al, 1
        jne .next
        call look_behind_bridge
.next:
        add ebx, 0x100
        test ebx, 0x00ff0000            ; past 00:1f.7
        jz .function
        ret

; ebx: address of a bridge. A root port has one device, at 0.0.
look_behind_bridge:
        push ebx
        movzx ecx, byte [es:NEXT_BUS]
        inc byte [es:NEXT_BUS]
        push ebx
        lea eax, [ebx + 0x18]
        mov ebx, ecx                    ; secondary and subordinate bus
        shl ebx, 8
        mov bl, cl
        shl ebx, 8
        call pci_write
        pop ebx
        mov ebx, ecx
        shl ebx, 16
        or ebx, 0x80000000
        mov eax, ebx
        call pci_read
        call say_if_virtio
        pop ebx
        ret

; eax: vendor and device, ebx: address.
say_if_virtio:
        cmp ax, VIRTIO_VENDOR
        jne .no
        push eax
        mov si, text_virtio
        call print
        mov eax, ebx
        shr eax, 16
        mov cl, 2
        call print_hex                  ; bus
        mov al, ':'
        call print_character
        mov eax, ebx
        shr eax, 11
        and eax, 0x1f
        call print_hex                  ; device
        mov al, ' '
        call print_character
        pop eax
        shr eax, 16
        mov cl, 4
        call print_hex
        call print_newline
.no:
        ret

; ---- ring 3 ------------------------------------------------------------------------------------------------------

; Goes to long mode and from there to ring 3, where even an emulated KVM lets the CPU itself run. I/O privilege level 3
; lets ring 3 print and power off, so nothing has to come back. No interrupt is taken on the way: there is no IDT.
enter_long_mode:
        mov di, PAGE_TABLES             ; the first 2 MiB, for all rings
        mov cx, 3 * 4096 / 4
        xor eax, eax
        rep stosd
        mov dword [es:PAGE_TABLES], PAGE_TABLES + 0x1000 | 7
        mov dword [es:PAGE_TABLES + 0x1000], PAGE_TABLES + 0x2000 | 7
        mov dword [es:PAGE_TABLES + 0x2000], 0x87
        mov eax, PAGE_TABLES
        mov cr3, eax
        mov eax, cr4
        or al, 1 << 5                   ; PAE
        mov cr4, eax
        mov ecx, EFER
        rdmsr
        or eax, EFER_LME
        wrmsr
        o32 lgdt [cs:gdt_register]
        mov eax, cr0
        or eax, 0x80000001              ; paging and protection
        mov cr0, eax
        jmp dword 0x08:(ROM_BASE + ring0)

        bits 64
ring0:
        mov ax, 0x10
        mov ss, ax
        mov ds, ax
        mov es, ax
        mov rsp, STACK
        push qword RFLAGS_IOPL3
        popfq
        ; KVM's emulator knows sysexit but not iret here; AMD's CPUs, and TCG's, know iret but not sysexit.
        xor eax, eax
        cpuid
        cmp ecx, 'ntel'
        jne .by_iret
        mov ecx, SYSENTER_CS
        mov eax, 0x08                   ; ring 3 gets 0x28 and 0x30
        xor edx, edx
        wrmsr
        mov edx, ROM_BASE + ring3
        mov ecx, STACK
        o64 sysexit
.by_iret:
        push qword 0x30 | 3
        push qword STACK
        push qword RFLAGS_IOPL3
        push qword 0x28 | 3
        push qword ROM_BASE + ring3
        iretq

ring3:
        mov ecx, RING3_ROUNDS
.count:
        dec ecx
        jnz .count
        mov esi, ROM_BASE + text_ring3
        call print_in_ring3
        mov esi, ROM_BASE + text_off
        call print_in_ring3
        mov dx, PM1_CONTROL
        mov ax, SLEEP_S5
        out dx, ax
.forever:
        pause
        jmp .forever

; Prints the zero-terminated string at rsi.
print_in_ring3:
        lodsb
        test al, al
        jz .done
        mov ah, al
        mov dx, COM1 + 5
.full:
        in al, dx
        test al, 0x20
        jz .full
        mov al, ah
        mov dx, COM1
        out dx, al
        jmp print_in_ring3
.done:
        ret

        bits 16

; ---- heartbeat ---------------------------------------------------------------------------------------------------

; Ten beats a second, asleep between them.
heartbeat:
        call pass_pic_interrupts
        mov word [es:8 * 4], on_timer   ; IRQ 0 at vector 8
        mov [es:8 * 4 + 2], cs
        mov al, 0x11                    ; initialise: edge, cascade, ICW4 follows
        out PIC1, al
        mov al, 8
        out PIC1 + 1, al
        mov al, 4
        out PIC1 + 1, al
        mov al, 1
        out PIC1 + 1, al
        mov al, 0xfe                    ; only the timer
        out PIC1 + 1, al
        mov al, 0x34                    ; channel 0, both bytes, rate generator
        out PIT + 3, al
        mov al, 59659 & 0xff            ; 1193182 Hz / 59659 = 20 Hz; every other tick is a beat
        out PIT, al
        mov al, 59659 >> 8
        out PIT, al
        mov dword [es:BEATS], 0
        sti
.wait:
        hlt
        mov dx, PM1_STATUS
        in ax, dx
        test ax, POWER_BUTTON
        jz .wait
        cli
        mov si, text_button
        call print
        jmp power_off

; The local APIC starts with its inputs masked; firmware lets it pass the 8259A's interrupts on. Its registers are out of
; real mode's reach, so fs gets a limit of 4 GiB, which it keeps when protected mode is left again.
pass_pic_interrupts:
        o32 lgdt [cs:gdt_register]
        mov eax, cr0
        or al, 1
        mov cr0, eax
        mov bx, 0x10
        mov fs, bx
        and al, 0xfe
        mov cr0, eax
        mov ebx, LOCAL_APIC
        or dword [fs:ebx + 0xf0], 0x100         ; spurious vector register: enabled
        mov dword [fs:ebx + 0x350], 0x700       ; LINT0: from the 8259A
        ret

on_timer:
        push eax
        push si
        inc dword [es:BEATS]
        mov eax, [es:BEATS]
        shr eax, 1
        jc .quiet
        push eax
        mov si, text_beat
        call print
        pop eax
        call print_decimal
        call print_newline
.quiet:
        mov al, 0x20                    ; end of interrupt
        out PIC1, al
        pop si
        pop eax
        iret

; ---- the end -----------------------------------------------------------------------------------------------------

power_off:
        mov si, text_off
        call print
        mov dx, PM1_CONTROL
        mov ax, SLEEP_S5
        out dx, ax
.forever:
        hlt
        jmp .forever

text_started:   db 'garboard-rom: started', 13, 10, 0
text_halted:    db 'garboard-rom: halted', 13, 10, 0
text_virtio:    db 'garboard-rom: virtio ', 0
text_ring3:     db 'garboard-rom: counted in ring 3', 13, 10, 0
text_beat:      db 'garboard-rom: beat ', 0
text_button:    db 'garboard-rom: power button', 13, 10, 0
text_off:       db 'garboard-rom: powering off', 13, 10, 0

        align 8
gdt:                                    ; the accessed bits are set: the CPU cannot set them in a ROM
        dq 0
        dq 0x00af9b000000ffff           ; 08 code of 64 bits, ring 0
        dq 0x00cf93000000ffff           ; 10 data, ring 0
        dq 0, 0
        dq 0x00affb000000ffff           ; 28 code of 64 bits, ring 3
        dq 0x00cff3000000ffff           ; 30 data, ring 3
gdt_end:
gdt_register:
        dw gdt_end - gdt - 1
        dd ROM_BASE + gdt

        times 0xfff0 - ($ - $$) db 0xff
; Where the CPU begins.
        jmp 0xf000:start
        times 0x10000 - ($ - $$) db 0xff
