/* What a transport got, in lines, and as JSON and JUnit's XML where a folder is named. */
#ifndef RESULTS_H
#define RESULTS_H

#include <stdio.h>

/* In one scenario under one law. `failure` is empty where all is well. The texts need no escaping: names
 * of laws and scenarios, and what rfc7928.c says. */
typedef struct result {
  const char *law, *scenario, *failure;
  double share, utilisation, delay_p95_s;
} result;

typedef struct results {
  FILE *json, *xml; /* NULL where no files are wanted */
  int count;
} results;

/* Makes the files in a folder, and the folder; none where it is NULL or empty. Not 0 where that fails. */
int results_open(results *to, const char *folder);
/* Prints a line, and adds it to the files. */
void results_add(results *to, const result *got);
/* Ends the files. Not 0 where they could not be written. */
int results_close(results *to);

#endif
