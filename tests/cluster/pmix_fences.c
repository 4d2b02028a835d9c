// One rank of pmix_fences.py: goes through fences, every second one without data as MPI_Init's second is, and prints when it entered and left each.
#include <pmix.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { kFences = 6 };

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int exchange(pmix_rank_t rank, int fence) {
    char key[32];
    snprintf(key, sizeof key, "fence-%d", fence);
    pmix_value_t value;
    value.type = PMIX_UINT32;
    value.data.uint32 = rank;
    const int code = PMIx_Put(PMIX_GLOBAL, key, &value);
    return code == PMIX_SUCCESS ? PMIx_Commit() : code;
}

int main(void) {
    pmix_proc_t self, all;
    if (PMIx_Init(&self, NULL, 0) != PMIX_SUCCESS) return 1;
    PMIX_PROC_CONSTRUCT(&all);
    memcpy(all.nspace, self.nspace, sizeof self.nspace);
    all.rank = PMIX_RANK_WILDCARD;
    double entered[kFences], left[kFences];
    for (int fence = 0; fence < kFences; ++fence) {
        bool with_data = fence % 2 == 0;
        pmix_info_t info;
        PMIX_INFO_CONSTRUCT(&info);
        PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &with_data, PMIX_BOOL);
        if (with_data && exchange(self.rank, fence) != PMIX_SUCCESS) return 1;
        entered[fence] = seconds();
        if (PMIx_Fence(&all, 1, &info, 1) != PMIX_SUCCESS) return 1;
        left[fence] = seconds();
    }
    char line[1024];
    int length = snprintf(line, sizeof line, "rank %u", self.rank);
    for (int fence = 0; fence < kFences; ++fence)
        length += snprintf(line + length, sizeof line - (size_t)length, " %.6f %.6f", entered[fence], left[fence]);
    puts(line);  // one write, so that lines of ranks do not mix
    PMIx_Finalize(NULL, 0);
    return 0;
}
