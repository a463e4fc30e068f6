; A guest of one sector: what the firmware loads from a disk's first sector, and nothing else. It runs wherever the
; firmware does, also under a KVM that interprets supervisor code and never finishes booting an ordinary kernel.
;
; It says lines starting with `garboard-boot: ` on COM1, counts, and sleeps until the power button is pressed; then it
; powers off.
;   nasm -f bin bootsector.asm
;   nasm -f bin -D DIRTY bootsector.asm     writes to each page of its memory first, and says so
;
; Sources: 16550 datasheet; ACPI 6.5, 4.8.3 (PM1 registers); QEMU's hw/acpi/core.c. The registers are where SeaBIOS
; puts them on q35: 0x600.

COM1            equ 0x3f8
PM1_STATUS      equ 0x600
PM1_ENABLE      equ 0x602
PM1_CONTROL     equ 0x604
POWER_BUTTON    equ 1 << 8
SLEEP_S5        equ 1 << 13             ; SLP_EN with SLP_TYP 0, which is S5 on q35
ROUNDS          equ 100000
PAGE            equ 4096
MIB             equ 1 << 20
SECTOR          equ 0x7c00

        bits 16
        org SECTOR

start:
        cli
        cld
        xor ax, ax
        mov ds, ax
        mov ss, ax
        mov sp, SECTOR
        mov dx, PM1_ENABLE
        mov ax, POWER_BUTTON
        out dx, ax
        mov si, text_started
        call print
%ifdef DIRTY
        call dirty
%endif
        mov ecx, ROUNDS
.count:
        dec ecx
        jnz .count
        mov si, text_counted
        call print
        sti                             ; the firmware's timer wakes us 18 times a second
.sleep:
        hlt
        mov dx, PM1_STATUS
        in ax, dx
        test ax, POWER_BUTTON
        jz .sleep
        cli
        mov si, text_button
        call print
        mov dx, PM1_CONTROL
        mov ax, SLEEP_S5
        out dx, ax
.forever:
        hlt
        jmp .forever

; Prints the zero-terminated string at ds:si.
print:
        lodsb
        test al, al
        jz .done
        mov ah, al
        mov dx, COM1 + 5
.full:
        in al, dx
        test al, 0x20                   ; transmitter holding register empty
        jz .full
        mov al, ah
        mov dx, COM1
        out dx, al
        jmp print
.done:
        ret

%ifdef DIRTY
; Writes to each page from 1 MiB to the end of memory below 4 GiB, through a segment whose limit outlives protected mode.
dirty:
        mov ax, 0xe801
        int 0x15                        ; bx: blocks of 64 KiB above 16 MiB
        movzx ebp, bx
        shl ebp, 16
        add ebp, 16 * MIB
        lgdt [descriptors]
        mov eax, cr0
        or al, 1
        mov cr0, eax
        mov bx, 8
        mov fs, bx
        and al, ~1
        mov cr0, eax
        mov edi, MIB
.page:
        mov [fs:edi], edi
        add edi, PAGE
        cmp edi, ebp
        jb .page
        mov si, text_dirtied
        call print
        ret

        align 8
descriptors:                            ; the first, which nobody reads, holds where the table is
        dw 15
        dd descriptors
        dw 0
        dw 0xffff, 0, 0x9200, 0x00cf    ; data, from 0 to 4 GiB
text_dirtied:   db 'garboard-boot: dirtied', 13, 10, 0
%endif

text_started:   db 'garboard-boot: started', 13, 10, 0
text_counted:   db 'garboard-boot: counted', 13, 10, 0
text_button:    db 'garboard-boot: power button', 13, 10, 0

; Where a disk's partition table is: empty, so that nobody takes it for one.
        times 510 - ($ - $$) db 0
        dw 0xaa55
