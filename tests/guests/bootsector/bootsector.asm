; A guest of one sector: what the firmware loads from a disk's first sector, and nothing else. It runs wherever the
; firmware does, also under a KVM that interprets supervisor code and never finishes booting an ordinary kernel.
;
; It says lines starting with `garboard-boot: ` on COM1, counts, and sleeps until the power button is pressed; then it
; powers off.
;   nasm -f bin bootsector.asm
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

text_started:   db 'garboard-boot: started', 13, 10, 0
text_counted:   db 'garboard-boot: counted', 13, 10, 0
text_button:    db 'garboard-boot: power button', 13, 10, 0

; Where a disk's partition table is: empty, so that nobody takes it for one.
        times 510 - ($ - $$) db 0
        dw 0xaa55
