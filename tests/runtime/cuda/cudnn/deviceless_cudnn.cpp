// Stands in for runtime/cuda/cudnn_library.cpp: the same library without a card. A handle needs one; what a graph asks of its handle is
// which card it is for, and that the library also takes as a description. So all calls go through but for those about the handle, and the
// one that runs a plan. Stands in for check.cpp too, which would need CUDA's libraries.

#include "tests/runtime/cuda/cudnn/deviceless_cudnn.hpp"

#include <map>
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

Runs all_runs;
std::map<cudnnBackendDescriptor_t, std::vector<void*>> addresses;  // of each list of them: cuDNN does not tell them again

cudnnStatus_t CUDNNWINAPI create(cudnnHandle_t* handle) {
    static int stands_for_a_handle = 0;
    *handle = reinterpret_cast<cudnnHandle_t>(&stands_for_a_handle);
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI destroy(cudnnHandle_t /*handle*/) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI set_stream(cudnnHandle_t /*handle*/, cudaStream_t /*stream*/) {
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t CUDNNWINAPI set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    const auto set = loaded().functions().cudnnBackendSetAttribute;
    const auto describe_card = [&](cudnnBackendAttributeName_t as) { return set(descriptor, as, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card); };
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) {
        const auto* const list = static_cast<void* const*>(values);
        addresses[descriptor].assign(list, list + count);
    }
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return describe_card(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    const cudnnStatus_t status = set(descriptor, name, type, count, values);
    if (status != CUDNN_STATUS_SUCCESS || name != CUDNN_ATTR_ENGINEHEUR_MODE) return status;
    return describe_card(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
}

cudnnStatus_t CUDNNWINAPI create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
    if (type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR) ++all_runs.lists_of_addresses;
    return loaded().functions().cudnnBackendCreateDescriptor(type, descriptor);
}
cudnnStatus_t CUDNNWINAPI execute(cudnnHandle_t /*handle*/, cudnnBackendDescriptor_t /*plan*/, cudnnBackendDescriptor_t pack) {
    const auto told = addresses.find(pack);
    if (told == addresses.end()) return CUDNN_STATUS_BAD_PARAM;
    all_runs.of.push_back(told->second);
    return CUDNN_STATUS_SUCCESS;
}

}  // namespace

int rank_of_this_thread() {
    return 0;
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
        some.cudnnBackendCreateDescriptor = create_descriptor;
        some.cudnnBackendExecute = execute;
        return some;
    }();
    return functions;
}

const Runs& runs() {
    return all_runs;
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
