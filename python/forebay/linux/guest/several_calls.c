/*
 * Several system calls of one program, handled as if it had made them one by
 * one: to enter a guest's kernel costs its host two switches of tasks.
 * `count` calls at `calls`; it gives how many of them were made.
 */
#define FOREBAY_CALLS 0x4642

enum {
	/* While it gives something it is made again. */
	FOREBAY_REPEAT = 1,
	/* Where it gives nothing the calls behind it are not made. */
	FOREBAY_LAST_IF_EMPTY = 2,
	/* Where it fails, likewise. */
	FOREBAY_LAST_IF_FAILED = 4,
};

struct forebay_call {
	unsigned long number, arguments[6], flags;
	/* The sum of what it gave, and what it gave at last. */
	unsigned long total;
	long last;
};

static void forebay_calls(struct uml_pt_regs *r)
{
	struct pt_regs *regs = container_of(r, struct pt_regs, regs);
	struct forebay_call __user *calls = (void __user *)UPT_SYSCALL_ARG1(r);
	unsigned long i, count = UPT_SYSCALL_ARG2(r);
	unsigned long before[MAX_REG_NR];

	memcpy(before, r->gp, sizeof(before));
	for (i = 0; i < count; i++) {
		struct forebay_call call;

		if (copy_from_user(&call, calls + i, sizeof(call)))
			break;
		call.total = 0;
		do {
			PT_SYSCALL_NR(r->gp) = call.number;
			UPT_SYSCALL_ARG1(r) = call.arguments[0];
			UPT_SYSCALL_ARG2(r) = call.arguments[1];
			UPT_SYSCALL_ARG3(r) = call.arguments[2];
			UPT_SYSCALL_ARG4(r) = call.arguments[3];
			UPT_SYSCALL_ARG5(r) = call.arguments[4];
			UPT_SYSCALL_ARG6(r) = call.arguments[5];
			handle_syscall(r);
			call.last = PT_REGS_SYSCALL_RET(regs);
			if (call.last > 0)
				call.total += call.last;
			interrupt_end();
		} while (call.last > 0 && call.flags & FOREBAY_REPEAT);
		if (copy_to_user(calls + i, &call, sizeof(call)))
			break;
		if ((call.last == 0 && call.flags & FOREBAY_LAST_IF_EMPTY) ||
		    (call.last < 0 && call.flags & FOREBAY_LAST_IF_FAILED)) {
			i++;
			break;
		}
	}
	memcpy(r->gp, before, sizeof(before));
	UPT_SYSCALL_NR(r) = PT_SYSCALL_NR(r->gp);
	PT_REGS_SET_SYSCALL_RETURN(regs, i);
}

