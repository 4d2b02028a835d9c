# What mgplan can use but does not need: CUDA, NCCL, cuDNN, MPI, OpenBLAS (without it plans are made, but not run). Each is switched by MGPLAN_WITH_<NAME> = auto (use it
# where it is found), on (fail where it is not) or off. Afterwards MGPLAN_HAVE_<NAME> tells, and the configuration ends
# with a line for each: what was found, or why it is left out.
#
# Sets for later use: MGPLAN_CUDA_ROOT, MGPLAN_CUDA_NVCC, MGPLAN_CUBLASLT_LIBRARY, MGPLAN_<NAME>_INCLUDE_DIR, MGPLAN_<NAME>_LIBRARY,
# MGPLAN_<NAME>_VERSION for CUDA, NCCL, CUDNN and OPENBLAS; the targets of FindMPI for MPI.

set(MGPLAN_FEATURES CUDA NCCL CUDNN MPI OPENBLAS)
foreach(feature IN LISTS MGPLAN_FEATURES)
  set(MGPLAN_WITH_${feature} auto CACHE STRING "Use ${feature}: auto, on (fail if absent) or off")
  set_property(CACHE MGPLAN_WITH_${feature} PROPERTY STRINGS auto on off)
  string(TOLOWER "${MGPLAN_WITH_${feature}}" wish)
  if(NOT wish MATCHES "^(auto|on|off)$")
    message(FATAL_ERROR "MGPLAN_WITH_${feature} = ${MGPLAN_WITH_${feature}} is none of auto, on, off")
  endif()
endforeach()

# mgplan_version_of(RESULT HEADER PREFIX…): "2.28.9" from the #defines of a header named by the prefixes.
function(mgplan_version_of result header)
  set(parts "")
  foreach(name IN LISTS ARGN)
    file(STRINGS "${header}" line REGEX "^#define[ \t]+${name}[ \t]+[0-9]+" LIMIT_COUNT 1)
    if(line MATCHES "[ \t]([0-9]+)")
      list(APPEND parts ${CMAKE_MATCH_1})
    endif()
  endforeach()
  list(JOIN parts . version)
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# mgplan_conclude(FEATURE FOUND TEXT): notes the line of the summary, and fails where the feature was demanded.
function(mgplan_conclude feature found text)
  set(MGPLAN_HAVE_${feature} ${found} PARENT_SCOPE)
  if(found)
    set(MGPLAN_SUMMARY_${feature} "${text}" PARENT_SCOPE)
  else()
    set(MGPLAN_SUMMARY_${feature} "left out: ${text}" PARENT_SCOPE)
    string(TOLOWER "${MGPLAN_WITH_${feature}}" wish)
    if(wish STREQUAL "on")
      message(FATAL_ERROR "MGPLAN_WITH_${feature} is on, but ${text}")
    endif()
  endif()
endfunction()

# mgplan_wanted(RESULT FEATURE): false where it is switched off.
function(mgplan_wanted result feature)
  string(TOLOWER "${MGPLAN_WITH_${feature}}" wish)
  if(wish STREQUAL "off")
    set(${result} FALSE PARENT_SCOPE)
  else()
    set(${result} TRUE PARENT_SCOPE)
  endif()
endfunction()

# Folders in which a toolkit may lie, best first: what the user names, the usual place, NVIDIA's pip wheels (one folder
# for all of CUDA 13's, one for each part of earlier ones).
set(MGPLAN_CUDA_PLACES ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
file(GLOB mgplan_versioned_toolkits /usr/local/cuda-* /opt/cuda)
list(SORT mgplan_versioned_toolkits COMPARE NATURAL ORDER DESCENDING)
list(APPEND MGPLAN_CUDA_PLACES ${mgplan_versioned_toolkits})
foreach(python_root IN ITEMS "$ENV{VIRTUAL_ENV}" "$ENV{CONDA_PREFIX}" "$ENV{HOME}/.local" /usr/local /usr)
  if(python_root)
    file(GLOB mgplan_wheels ${python_root}/lib/python3*/site-packages/nvidia/* ${python_root}/lib/python3*/dist-packages/nvidia/*)
    list(APPEND MGPLAN_CUDA_PLACES ${mgplan_wheels})
  endif()
endforeach()
list(REMOVE_DUPLICATES MGPLAN_CUDA_PLACES)

# What the module's kernels are compiled for; the newest also as code that later cards can translate.
set(MGPLAN_CUDA_ARCHITECTURES "80-real;90-real;100" CACHE STRING "GPU architectures, as CMAKE_CUDA_ARCHITECTURES")

# --- CUDA: the compiler, its headers and the runtime library -------------------------------------------------------
mgplan_wanted(wanted CUDA)
if(wanted)
  find_program(MGPLAN_CUDA_NVCC nvcc HINTS ${MGPLAN_CUDA_PLACES} PATH_SUFFIXES bin)
  set(places ${MGPLAN_CUDA_PLACES})
  if(MGPLAN_CUDA_NVCC)
    file(REAL_PATH ${MGPLAN_CUDA_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH bin)
    cmake_path(GET bin PARENT_PATH root)
    list(PREPEND places ${root})
  endif()
  find_path(MGPLAN_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${places} PATH_SUFFIXES include targets/x86_64-linux/include)
  find_library(MGPLAN_CUDA_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12 libcudart.so.11.0 HINTS ${places}
    PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
  if(NOT MGPLAN_CUDA_NVCC)
    mgplan_conclude(CUDA FALSE "the compiler nvcc was not found; install the CUDA toolkit or set CUDA_HOME to its folder")
  elseif(NOT MGPLAN_CUDA_INCLUDE_DIR)
    mgplan_conclude(CUDA FALSE "cuda_runtime_api.h was not found beside ${MGPLAN_CUDA_NVCC}")
  elseif(NOT MGPLAN_CUDA_LIBRARY)
    mgplan_conclude(CUDA FALSE "libcudart was not found beside ${MGPLAN_CUDA_NVCC}")
  else()
    set(MGPLAN_CUDA_ROOT ${root})
    find_library(MGPLAN_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13 libcublasLt.so.12 HINTS ${places}
      PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
    find_library(MGPLAN_CUDART_STATIC_LIBRARY libcudart_static.a HINTS ${places} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
    mgplan_version_of(coded ${MGPLAN_CUDA_INCLUDE_DIR}/cuda_runtime_api.h CUDART_VERSION) # 13000 is 13.0, 12040 is 12.4
    math(EXPR major "${coded} / 1000")
    math(EXPR minor "${coded} % 1000 / 10")
    set(MGPLAN_CUDA_VERSION ${major}.${minor})
    if(NOT MGPLAN_CUBLASLT_LIBRARY)
      mgplan_conclude(CUDA FALSE "libcublasLt was not found beside ${MGPLAN_CUDA_NVCC}")
    elseif(NOT MGPLAN_CUDART_STATIC_LIBRARY)
      mgplan_conclude(CUDA FALSE "libcudart_static.a was not found beside ${MGPLAN_CUDA_NVCC}")
    elseif(MGPLAN_CUDA_VERSION VERSION_LESS 12.0)
      mgplan_conclude(CUDA FALSE "version ${MGPLAN_CUDA_VERSION} at ${MGPLAN_CUDA_ROOT} is older than 12.0")
    elseif(MGPLAN_SANITIZE)
      mgplan_conclude(CUDA FALSE "a module loaded at run time does not go with sanitizers")
    else()
      mgplan_conclude(CUDA TRUE "found version ${MGPLAN_CUDA_VERSION} at ${MGPLAN_CUDA_ROOT}, for ${MGPLAN_CUDA_ARCHITECTURES}")
    endif()
  endif()
else()
  mgplan_conclude(CUDA FALSE "switched off by MGPLAN_WITH_CUDA")
endif()

# --- NCCL and cuDNN: neither brings a CMake package ----------------------------------------------------------------
# mgplan_find_cuda_library(FEATURE TITLE HEADER LIBRARIES VERSION_HEADER VERSION_NAMES)
macro(mgplan_find_cuda_library feature title header libraries version_header version_names)
  mgplan_wanted(wanted ${feature})
  if(NOT wanted)
    mgplan_conclude(${feature} FALSE "switched off by MGPLAN_WITH_${feature}")
  elseif(NOT MGPLAN_HAVE_CUDA)
    mgplan_conclude(${feature} FALSE "it needs CUDA, which is left out")
  else()
    set(places ${${feature}_ROOT} $ENV{${feature}_ROOT} $ENV{${feature}_HOME} ${MGPLAN_CUDA_ROOT} ${MGPLAN_CUDA_PLACES})
    find_path(MGPLAN_${feature}_INCLUDE_DIR ${header} HINTS ${places} PATH_SUFFIXES include)
    find_library(MGPLAN_${feature}_LIBRARY NAMES ${libraries} HINTS ${places} PATH_SUFFIXES lib64 lib)
    if(NOT MGPLAN_${feature}_INCLUDE_DIR)
      mgplan_conclude(${feature} FALSE "${header} was not found; install ${title} or set ${feature}_ROOT to its folder")
    elseif(NOT MGPLAN_${feature}_LIBRARY)
      mgplan_conclude(${feature} FALSE "${header} was found in ${MGPLAN_${feature}_INCLUDE_DIR}, but its library was not")
    else()
      mgplan_version_of(MGPLAN_${feature}_VERSION ${MGPLAN_${feature}_INCLUDE_DIR}/${version_header} ${version_names})
      mgplan_conclude(${feature} TRUE "found version ${MGPLAN_${feature}_VERSION} at ${MGPLAN_${feature}_LIBRARY}")
    endif()
  endif()
endmacro()
mgplan_find_cuda_library(NCCL NCCL nccl.h "nccl;libnccl.so.2" nccl.h "NCCL_MAJOR;NCCL_MINOR;NCCL_PATCH")
mgplan_find_cuda_library(CUDNN cuDNN cudnn_version.h "cudnn;libcudnn.so.9;libcudnn.so.8" cudnn_version.h
  "CUDNN_MAJOR;CUDNN_MINOR;CUDNN_PATCHLEVEL")

# --- MPI -----------------------------------------------------------------------------------------------------------
mgplan_wanted(wanted MPI)
if(wanted)
  set(MPI_CXX_SKIP_MPICXX TRUE) # the C interface is enough; the C++ one is long gone from the standard
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    list(GET MPI_CXX_LIBRARIES 0 library)
    mgplan_conclude(MPI TRUE "found version ${MPI_CXX_VERSION} (of the standard) at ${library}")
  else()
    mgplan_conclude(MPI FALSE "no MPI was found; on Debian: apt-get install libopenmpi-dev openmpi-bin")
  endif()
else()
  mgplan_conclude(MPI FALSE "switched off by MGPLAN_WITH_MPI")
endif()

# --- OpenBLAS: the build without threads, as a static library -------------------------------------------------------
# Ranks are the parallelism, and a shared library could be swapped for the threaded build at run time (Debian's
# alternatives: both have one SONAME).
mgplan_wanted(wanted OPENBLAS)
if(wanted)
  set(places ${OPENBLAS_ROOT} $ENV{OPENBLAS_ROOT})
  find_path(MGPLAN_OPENBLAS_INCLUDE_DIR cblas.h HINTS ${places}
    PATH_SUFFIXES include include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial
    NO_CMAKE_ENVIRONMENT_PATH)
  find_library(MGPLAN_OPENBLAS_LIBRARY libopenblas.a HINTS ${places}
    PATH_SUFFIXES lib openblas-serial ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-serial)
  if(NOT MGPLAN_OPENBLAS_LIBRARY)
    mgplan_conclude(OPENBLAS FALSE "the serial libopenblas.a was not found; on Debian: apt-get install libopenblas-serial-dev")
  elseif(NOT EXISTS ${MGPLAN_OPENBLAS_INCLUDE_DIR}/openblas_config.h)
    mgplan_conclude(OPENBLAS FALSE "cblas.h and openblas_config.h were not found beside each other; set OPENBLAS_ROOT")
  else()
    file(STRINGS ${MGPLAN_OPENBLAS_INCLUDE_DIR}/openblas_config.h line REGEX "^#define OPENBLAS_VERSION" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9][0-9.]*[0-9]" MGPLAN_OPENBLAS_VERSION "${line}")
    mgplan_conclude(OPENBLAS TRUE "found version ${MGPLAN_OPENBLAS_VERSION} at ${MGPLAN_OPENBLAS_LIBRARY}")
  endif()
else()
  mgplan_conclude(OPENBLAS FALSE "switched off by MGPLAN_WITH_OPENBLAS")
endif()

# For ./mgplan, which builds anew when a command needs more: the names of what was found, in one line.
set(found "")
foreach(feature IN LISTS MGPLAN_FEATURES)
  if(MGPLAN_HAVE_${feature})
    list(APPEND found ${feature})
  endif()
endforeach()
list(JOIN found " " found)
file(WRITE ${PROJECT_BINARY_DIR}/mgplan_features "${found}\n")

# Prints the lines; called at the very end of the configuration.
function(mgplan_print_features)
  message(STATUS "mgplan ${PROJECT_VERSION}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, build type ${CMAKE_BUILD_TYPE}")
  foreach(feature IN LISTS MGPLAN_FEATURES)
    string(REPLACE CUDNN cuDNN title ${feature})
    string(REPLACE OPENBLAS OpenBLAS title ${title})
    message(STATUS "  ${title}: ${MGPLAN_SUMMARY_${feature}}")
  endforeach()
  if(MGPLAN_SANITIZE)
    message(STATUS "  sanitizers: ${MGPLAN_SANITIZE}")
  endif()
endfunction()
