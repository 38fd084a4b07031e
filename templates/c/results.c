#define _POSIX_C_SOURCE 200809L
#include "results.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

static FILE *file(const char *folder, const char *name) {
  char path[4096];
  int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *made = length < (int)sizeof path ? fopen(path, "w") : NULL;
  if (!made) fprintf(stderr, "%s: %s\n", path, strerror(errno));
  return made;
}

int results_open(results *to, const char *folder) {
  *to = (results){0};
  if (!folder || !*folder) return 0;
  if (mkdir(folder, 0777) && errno != EEXIST)
    return fprintf(stderr, "%s: %s\n", folder, strerror(errno)), 1;
  to->json = file(folder, "rfc7928.json"), to->xml = file(folder, "rfc7928.xml");
  if (!to->json || !to->xml) return 1;
  fputs("[", to->json);
  fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"rfc7928\">\n", to->xml);
  return 0;
}

static void number(FILE *out, const char *name, double value, const char *end) {
  if (isfinite(value))
    fprintf(out, "\"%s\":%.9g%s", name, value, end);
  else
    fprintf(out, "\"%s\":null%s", name, end); /* JSON has no NaN */
}

void results_add(results *to, const result *got) {
  char line[200];
  snprintf(line, sizeof line,
           "%-22s %-9s its share %3.0f %%, utilisation %3.0f %%, delay p95 %6.1f ms", got->scenario,
           got->law, 100 * got->share, 100 * got->utilisation, 1e3 * got->delay_p95_s);
  printf("%s\n", line);
  fflush(stdout); /* a whole line, also where others write to the same place */
  if (*got->failure) fprintf(stderr, "%s, %s: %s\n", got->scenario, got->law, got->failure);
  if (!to->json) return;
  fprintf(to->json, "%s\n{\"law\":\"%s\",\"scenario\":\"%s\",\"passed\":%s,\"failures\":[",
          to->count++ ? "," : "", got->law, got->scenario, *got->failure ? "false" : "true");
  if (*got->failure) fprintf(to->json, "\"%s\"", got->failure);
  fputs("],\"metrics\":{", to->json);
  number(to->json, "share", got->share, ",");
  number(to->json, "utilisation", got->utilisation, ",");
  number(to->json, "delay_p95_s", got->delay_p95_s, "}}");
  fprintf(to->xml, "  <testcase classname=\"rfc7928.%s\" name=\"%s\">\n", got->law, got->scenario);
  if (*got->failure) fprintf(to->xml, "    <failure message=\"%s\"/>\n", got->failure);
  fprintf(to->xml, "    <system-out>%s</system-out>\n  </testcase>\n", line);
}

int results_close(results *to) {
  if (!to->json) return 0;
  fputs("\n]\n", to->json);
  fputs("</testsuite>\n", to->xml);
  int failed = ferror(to->json) | ferror(to->xml);
  failed |= fclose(to->json);
  failed |= fclose(to->xml);
  if (failed) fputs("the files of results are not whole\n", stderr);
  return failed != 0;
}
