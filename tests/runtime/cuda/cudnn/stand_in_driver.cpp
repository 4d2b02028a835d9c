// A libcuda.so.1 for building cuDNN's plans where there is no driver: loading what was compiled succeeds, and nothing can run. cuDNN 9.19
// looks these functions up by name (CUDA driver API) and refuses every plan without one of them. Addresses only have to differ from 0.

namespace {
enum Result : int { success = 0, no_device = 100, not_found = 500 };
int loaded;  // its address stands for libraries, modules and kernels

int give(void** what) {
    *what = &loaded;
    return success;
}
int give(int* value, int number) {
    *value = number;
    return success;
}
}  // namespace

extern "C" {
int cuInit(unsigned /*flags*/) {
    return no_device;
}
int cuDriverGetVersion(int* version) {
    return give(version, 13000);
}
int cuDeviceGetCount(int* count) {
    return give(count, 0);
}
int cuGetErrorName(int /*error*/, const char** text) {
    *text = "stand-in";
    return success;
}
int cuGetErrorString(int /*error*/, const char** text) {
    *text = "the stand-in for a driver";
    return success;
}
int cuGetProcAddress(const char* /*name*/, void** found, int /*version*/, unsigned long /*flags*/) {
    *found = nullptr;
    return not_found;
}
int cuGetProcAddress_v2(const char* /*name*/, void** found, int /*version*/, unsigned long /*flags*/, int* /*status*/) {
    *found = nullptr;
    return not_found;
}
int cuLibraryLoadData(void** made) {
    return give(made);
}
int cuLibraryGetKernel(void** made) {
    return give(made);
}
int cuLibraryGetModule(void** made) {
    return give(made);
}
int cuKernelGetFunction(void** made) {
    return give(made);
}
int cuModuleLoadData(void** made) {
    return give(made);
}
int cuModuleLoadDataEx(void** made) {
    return give(made);
}
int cuModuleGetFunction(void** made) {
    return give(made);
}
int cuKernelGetAttribute(int* value) {
    return give(value, 0);
}
int cuFuncGetAttribute(int* value) {
    return give(value, 0);
}
int cuLibraryUnload(void* /*made*/) {
    return success;
}
int cuModuleUnload(void* /*made*/) {
    return success;
}
int cuKernelSetAttribute() {
    return success;
}
int cuFuncSetAttribute() {
    return success;
}

// Looked up and not called while a plan is built.
#define MGPLAN_NEVER_CALLED(name) \
    int name() {                  \
        return no_device;         \
    }
MGPLAN_NEVER_CALLED(cuCtxGetCurrent)
MGPLAN_NEVER_CALLED(cuCtxGetLimit)
MGPLAN_NEVER_CALLED(cuCtxPopCurrent)
MGPLAN_NEVER_CALLED(cuCtxPushCurrent)
MGPLAN_NEVER_CALLED(cuDeviceGet)
MGPLAN_NEVER_CALLED(cuLaunchCooperativeKernel)
MGPLAN_NEVER_CALLED(cuLaunchKernel)
MGPLAN_NEVER_CALLED(cuLaunchKernelEx)
MGPLAN_NEVER_CALLED(cuLibraryLoadFromFile)
MGPLAN_NEVER_CALLED(cuLinkAddData)
MGPLAN_NEVER_CALLED(cuLinkComplete)
MGPLAN_NEVER_CALLED(cuLinkCreate)
MGPLAN_NEVER_CALLED(cuLinkDestroy)
MGPLAN_NEVER_CALLED(cuOccupancyMaxPotentialClusterSize)
MGPLAN_NEVER_CALLED(cuStreamGetCtx)
}
