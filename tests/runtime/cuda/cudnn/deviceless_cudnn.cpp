// Stands in for runtime/cuda/cudnn_library.cpp: the same library without a card. A handle needs one; what a graph asks of its handle is
// which card it is for, and that the library also takes as a description. So all calls go through but for those about the handle, and the
// one that runs a plan. Stands in for check.cpp too, which would need CUDA's libraries.

#include "tests/runtime/cuda/cudnn/deviceless_cudnn.hpp"

#include <map>
#include <mutex>
#include <vector>

#include "plan/text/errors.hpp"
#include "runtime/cuda/check.hpp"
#include "runtime/cuda/cudnn_library.hpp"

namespace mgplan::runtime::cuda {
namespace {

cudnnBackendDescriptor_t card = nullptr;  // of the whole process

const LibraryFunctions<CudnnFunctions>& loaded() {
    static const LibraryFunctions<CudnnFunctions> opened("cuDNN", MGPLAN_LIBRARY_FILE("cudnn", CUDNN_MAJOR));
    return opened;
}

thread_local int this_threads_rank = 0;

std::mutex mutex;  // ranks are threads; guards what follows
Runs all_runs;
PlansMade all_plans;
bool writes = true, reads = true;
std::map<cudnnBackendDescriptor_t, std::vector<void*>> addresses;  // of each list of them: cuDNN does not tell them again
std::map<cudnnBackendDescriptor_t, cudnnHandle_t> handles;         // of each plan

cudnnStatus_t CUDNNWINAPI create(cudnnHandle_t* handle) {
    *handle = reinterpret_cast<cudnnHandle_t>(new int(0));  // its address is all there is of it
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI destroy(cudnnHandle_t handle) {
    delete reinterpret_cast<int*>(handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI set_stream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) {
    return CUDNN_STATUS_SUCCESS;
}
/// Whether the library may have the attribute.
bool note(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, std::int64_t count, const void* values) {
    const std::scoped_lock lock(mutex);
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
        const auto* const list = static_cast<void* const*>(values);
        addresses[descriptor].assign(list, list + count);
    }
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) handles[descriptor] = *static_cast<const cudnnHandle_t*>(values);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) ++all_plans.compiled;
    if (name != CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) return true;
    ++all_plans.read;
    return reads;
}
cudnnStatus_t CUDNNWINAPI set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    const auto set = loaded().functions().cudnnBackendSetAttribute;
    const auto describe_card = [&](cudnnBackendAttributeName_t as) { return set(descriptor, as, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card); };
    if (!note(descriptor, name, count, values)) return CUDNN_STATUS_NOT_SUPPORTED;
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return describe_card(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    const cudnnStatus_t status = set(descriptor, name, type, count, values);
    if (status != CUDNN_STATUS_SUCCESS || name != CUDNN_ATTR_ENGINEHEUR_MODE) return status;
    return describe_card(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
}
cudnnStatus_t CUDNNWINAPI get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, std::int64_t most, std::int64_t* count, void* values) {
    if (name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) {
        const std::scoped_lock lock(mutex);
        if (!writes) return CUDNN_STATUS_NOT_SUPPORTED;
    }
    return loaded().functions().cudnnBackendGetAttribute(descriptor, name, type, most, count, values);
}

cudnnStatus_t CUDNNWINAPI create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
    if (type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) {
        const std::scoped_lock lock(mutex);
        ++all_runs.lists_of_addresses;
    }
    return loaded().functions().cudnnBackendCreateDescriptor(type, descriptor);
}
cudnnStatus_t CUDNNWINAPI execute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    const std::scoped_lock lock(mutex);
    const auto told = addresses.find(pack);
    const auto of_plan = handles.find(plan);
    if (told == addresses.end() || of_plan == handles.end() || of_plan->second != handle) return CUDNN_STATUS_BAD_PARAM;
    all_runs.of.push_back(told->second);
    all_runs.with.push_back(handle);
    return CUDNN_STATUS_SUCCESS;
}

}  // namespace

void name_rank_of_this_thread(int rank) {
    this_threads_rank = rank;
}

int rank_of_this_thread() {
    return this_threads_rank;
}

const std::string& cudnn_unavailable() {
    return loaded().unavailable();
}

const CudnnFunctions& cudnn() {
    static const CudnnFunctions functions = [] {
        CudnnFunctions some = loaded().functions();
        some.cudnnCreate = create;
        some.cudnnDestroy = destroy;
        some.cudnnSetStream = set_stream;
        some.cudnnBackendSetAttribute = set_attribute;
        some.cudnnBackendGetAttribute = get_attribute;
        some.cudnnBackendCreateDescriptor = create_descriptor;
        some.cudnnBackendExecute = execute;
        return some;
    }();
    return functions;
}

const Runs& runs() {
    return all_runs;
}

PlansMade plans_made() {
    const std::scoped_lock lock(mutex);
    return all_plans;
}

void let_plans_be_written(bool written, bool read) {
    const std::scoped_lock lock(mutex);
    writes = written;
    reads = read;
}

void stand_before_card(const std::string& properties) {
    const CudnnFunctions& real = loaded().functions();
    const auto expect = [&](cudnnStatus_t status, const char* what) {
        if (status != CUDNN_STATUS_SUCCESS) throw RunError(std::string(what) + ": " + real.cudnnGetErrorString(status));
    };
    if (card != nullptr) real.cudnnBackendDestroyDescriptor(card);
    expect(real.cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &card), "a description of a card");
    expect(real.cudnnBackendSetAttribute(card, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(properties),
                                         properties.data()),
           "its properties");
    expect(real.cudnnBackendFinalize(card), "the card that they describe");
}

}  // namespace mgplan::runtime::cuda
